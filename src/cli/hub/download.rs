//! Downloads a model into the cache as huggingface_hub lays it out:
//!
//! ```text
//! models--OWNER--MODEL/blobs/HASH                            the bytes
//! models--OWNER--MODEL/snapshots/COMMIT/config.json          a link to them
//! models--OWNER--MODEL/refs/REVISION                         COMMIT
//! ```
//!
//! Links come when all bytes are there, and the reference last, so that what was interrupted is not taken for a model.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use ureq::{Agent, Body, http::Response};

use crate::{
    checkpoint::hub::{HubModel, home, is_plain, needed},
    cli::{output, progress::Progress},
    error::{Error, Result},
};

/// The hub, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";
/// How long to wait for a connection, and for the next bytes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest list of files, or index of shards, that is read.
const MAX_LIST: u64 = 64 << 20;
const MB: u64 = 1_000_000;

/// What the hub tells of a model.
#[derive(Deserialize)]
struct About {
    #[serde(rename = "sha")]
    commit: String,
    #[serde(rename = "siblings")]
    files: Vec<Remote>,
}

/// A file on the hub.
#[derive(Deserialize)]
struct Remote {
    #[serde(rename = "rfilename")]
    name: String,
    size: u64,
    /// Git's hash of the file, or of a pointer to it.
    #[serde(rename = "blobId")]
    blob: String,
    lfs: Option<Large>,
}

/// A large file, which Git holds a pointer to.
#[derive(Deserialize)]
struct Large {
    sha256: String,
}

impl Remote {
    /// The name of the file's bytes in the cache.
    fn hash(&self) -> &str {
        self.lfs.as_ref().map_or(&self.blob, |large| &large.sha256)
    }
}

/// An index of shards.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Downloads `model`, which a person named by `path`.
pub fn download(path: &Path, model: &HubModel) -> Result<()> {
    let hub = Hub::new(path);
    let about = hub.about(model)?;
    let names: Vec<&str> = about.files.iter().map(|file| file.name.as_str()).collect();
    let nothing = || hub.refuse(format!("the model on {} has no weights of a known name", hub.endpoint));
    let mut wanted: Vec<String> = needed(&names).ok_or_else(nothing)?.into_iter().map(str::to_owned).collect();
    let mut done = 0;
    while let Some(name) = wanted.get(done).cloned() {
        let file = about.files.iter().find(|file| file.name == name);
        let file = file.ok_or_else(|| hub.refuse(format!("{name}, which the index names, is not on the hub")))?;
        if ![name.as_str(), file.hash(), about.commit.as_str()].into_iter().all(is_plain) {
            return Err(hub.refuse(format!("the hub's answer for {name} cannot be a file of a cache")));
        }
        let blob = hub.blob(model, &about.commit, file)?;
        if name.ends_with(".index.json") {
            wanted.extend(hub.shards(&blob)?);
        }
        done += 1;
    }
    let link = |name: &String| -> io::Result<()> {
        let file = about.files.iter().find(|file| file.name == *name);
        file.map_or(Ok(()), |file| link(&model.folder, &about.commit, file))
    };
    let placed = wanted.iter().try_for_each(link).and_then(|()| refer(model, &about.commit));
    placed.map_err(|error| Error::output(&model.folder, format!("the cache cannot be written: {error}")))
}

/// A hub and how it is asked.
struct Hub<'a> {
    path: &'a Path,
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

impl<'a> Hub<'a> {
    fn new(path: &'a Path) -> Self {
        let named = |name: &str| env::var(name).ok().map(|value| value.trim().to_owned()).filter(|v| !v.is_empty());
        let login = || fs::read_to_string(home().join("token")).ok().map(|token| token.trim().to_owned());
        let config = Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .user_agent(concat!("vit-attn/", env!("CARGO_PKG_VERSION")));
        Self {
            path,
            agent: config.build().new_agent(),
            endpoint: named("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned()).trim_end_matches('/').to_owned(),
            token: named("HF_TOKEN").or_else(login).filter(|token| !token.is_empty()),
        }
    }

    fn refuse(&self, reason: String) -> Error {
        Error::checkpoint(self.path, reason)
    }

    /// Asks for `what` below the endpoint. The token is not sent on to where the hub redirects.
    fn get(&self, what: &str) -> Result<Response<Body>> {
        let url = format!("{}/{what}", self.endpoint);
        let request = self.agent.get(&url);
        let request = match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        request.call().map_err(|error| match error {
            ureq::Error::StatusCode(status @ (401 | 403 | 404)) => self.refuse(format!(
                "is neither a file or directory here nor a model and revision on {} (HTTP {status}), or one that needs \
                 leave: give it by HF_TOKEN",
                self.endpoint
            )),
            error => self.refuse(format!("{url} cannot be downloaded: {error}")),
        })
    }

    fn about(&self, model: &HubModel) -> Result<About> {
        let mut answer = self.get(&format!("api/models/{}/revision/{}?blobs=true", model.id, model.revision))?;
        let bytes = answer.body_mut().with_config().limit(MAX_LIST).read_to_vec();
        let bytes = bytes.map_err(|error| self.refuse(format!("{} broke off: {error}", self.endpoint)))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| self.refuse(format!("{} does not answer as the hub does: {error}", self.endpoint)))
    }

    /// The path of a file's bytes in the cache, downloaded if they are not there.
    fn blob(&self, model: &HubModel, commit: &str, file: &Remote) -> Result<PathBuf> {
        let blobs = model.folder.join("blobs");
        let blob = blobs.join(file.hash());
        if blob.metadata().is_ok_and(|found| found.len() == file.size) {
            return Ok(blob);
        }
        let unwritable = |error: io::Error| Error::output(&blobs, format!("the cache cannot be written: {error}"));
        fs::create_dir_all(&blobs).map_err(unwritable)?;
        let mut part = output::temporary(&blobs).map_err(unwritable)?;
        let answer = self.get(&format!("{}/resolve/{commit}/{}", model.id, file.name))?;
        let mut body = answer.into_body().into_reader();
        let mut progress = Progress::new(file.size / MB, &format!("downloading {} (MB)", file.name));
        let (mut hash, mut length) = (Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let broke = |error| self.refuse(format!("the download of {} broke off: {error}; try again", file.name));
            let count = body.read(&mut buffer).map_err(broke)?;
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
            part.write_all(&buffer[..count]).map_err(unwritable)?;
            length += count as u64;
            progress.reach((length / MB) as usize, (file.size / MB) as usize);
        }
        let hash = format!("{:x}", hash.finalize());
        if length != file.size || file.lfs.as_ref().is_some_and(|large| large.sha256 != hash) {
            let (name, size) = (&file.name, file.size);
            return Err(
                self.refuse(format!("{name} came with {length} bytes that are not the hub's {size}; try again"))
            );
        }
        part.persist(&blob).map_err(|error| unwritable(error.error))?;
        Ok(blob)
    }

    /// The shards that an index names.
    fn shards(&self, index: &Path) -> Result<Vec<String>> {
        let bytes = fs::read(index).map_err(|error| self.refuse(format!("the index cannot be read: {error}")))?;
        let index: Index =
            serde_json::from_slice(&bytes).map_err(|error| self.refuse(format!("the index is broken: {error}")))?;
        let mut shards: Vec<String> = index.weight_map.into_values().collect();
        shards.sort();
        shards.dedup();
        Ok(shards)
    }
}

/// Puts a file into the snapshot of a commit.
fn link(folder: &Path, commit: &str, file: &Remote) -> io::Result<()> {
    let snapshot = folder.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot)?;
    let place = snapshot.join(&file.name);
    if place.exists() {
        return Ok(());
    }
    share(folder, file.hash(), &place)
}

#[cfg(unix)]
fn share(_folder: &Path, hash: &str, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(Path::new("../../blobs").join(hash), place)
}

/// Links to paths need rights that few people have elsewhere.
#[cfg(not(unix))]
fn share(folder: &Path, hash: &str, place: &Path) -> io::Result<()> {
    fs::hard_link(folder.join("blobs").join(hash), place)
}

/// Notes which commit a revision is.
fn refer(model: &HubModel, commit: &str) -> io::Result<()> {
    if model.revision == commit {
        return Ok(());
    }
    let refs = model.folder.join("refs");
    fs::create_dir_all(&refs)?;
    let mut part = output::temporary(&refs)?;
    part.write_all(commit.as_bytes())?;
    part.persist(refs.join(&model.revision))?;
    Ok(())
}
