//! Models of the Hugging Face hub: found in the cache, or downloaded into it.

use std::{fs, path::Path};

use super::{Ended, Place, asset, fixture};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Where nobody answers.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Runs the program with its cache in the folder `hf`, and some more variables.
fn vit(place: &Place, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut command = place.command(arguments);
    for name in [
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env_remove(name);
    }
    let output = command.env("HF_HOME", place.path("hf")).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Copies a checkpoint of several shards.
fn copy(to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(fixture("families/hf-vit-sharded-f16")).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&entry, to.join(entry.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_model_in_the_cache_is_opened_by_its_id_and_revision() {
    let place = Place::new();
    let folder = place.path("hf/hub/models--owner--tiny");
    copy(&folder.join("snapshots").join(COMMIT));
    fs::create_dir(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), COMMIT).unwrap();
    for id in ["owner/tiny", "owner/tiny@main", &format!("owner/tiny@{COMMIT}")] {
        let ended = vit(&place, &[("HF_ENDPOINT", NOWHERE)], &["info", id]);
        assert_eq!(ended.code, Some(0), "{id}: {}", ended.err);
        assert!(ended.out.contains("hf-vit"), "{}", ended.out);
    }
    let other = place.path("other");
    fs::rename(place.path("hf/hub"), &other).unwrap();
    let ended = vit(&place, &[("HF_HUB_CACHE", other.to_str().unwrap())], &["info", "owner/tiny"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    for id in ["owner/tiny@v2", "owner/none"] {
        let variables = [("HF_HUB_CACHE", other.to_str().unwrap()), ("HF_HUB_OFFLINE", "1")];
        let ended = vit(&place, &variables, &["info", id]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.err.starts_with(&format!("vit-attn: error: {id}: ")), "{}", ended.err);
        assert!(ended.err.contains("Hugging Face cache") && ended.err.contains("HF_HUB_OFFLINE"), "{}", ended.err);
    }
}

#[test]
fn a_directory_of_that_name_wins() {
    let place = Place::new();
    copy(&place.path("owner/tiny"));
    let ended = vit(&place, &[("HF_ENDPOINT", NOWHERE)], &["info", "owner/tiny"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(!place.path("hf").exists());
}

#[test]
#[cfg(not(feature = "hub"))]
fn a_model_that_is_not_in_the_cache_gets_advice() {
    let ended = vit(&Place::new(), &[], &["run", &asset("cat.png"), "-m", "owner/tiny"]);
    assert_eq!(ended.code, Some(1));
    let error = ended.err.trim_end();
    assert!(error.contains("`hf download owner/tiny`") && error.contains("`--features hub`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[cfg(feature = "hub")]
mod download {
    use std::{
        collections::BTreeSet,
        io::{BufRead as _, BufReader, Write as _},
        net::{TcpListener, TcpStream},
        sync::{Arc, Mutex},
        thread,
    };

    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// What the hub does with the weights' second shard.
    #[derive(Clone, Copy, PartialEq)]
    enum Mood {
        Well,
        BreaksOff,
        Falsifies,
    }

    /// The path of a request, and its `Authorization`.
    type Asked = (String, Option<String>);

    /// A hub on this machine with one model, `owner/tiny`.
    struct Hub {
        endpoint: String,
        asked: Arc<Mutex<Vec<Asked>>>,
    }

    fn files() -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(fixture("families/hf-vit-sharded-f16")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .filter(|path| !path.ends_with("expected.safetensors"))
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
            .collect();
        files.push(("README.md".to_owned(), b"a card".to_vec()));
        files.sort();
        files
    }

    fn sha256(bytes: &[u8]) -> String {
        format!("{:x}", Sha256::digest(bytes))
    }

    /// Settings lie in Git itself, under a shorter hash; weights do not.
    fn hash(name: &str, bytes: &[u8]) -> String {
        let hash = sha256(bytes);
        if name.ends_with(".safetensors") { hash } else { hash[..40].to_owned() }
    }

    fn about() -> Vec<u8> {
        let file = |(name, bytes): &(String, Vec<u8>)| {
            let mut file = json!({"rfilename": name, "size": bytes.len(), "blobId": &sha256(bytes)[..40]});
            if name.ends_with(".safetensors") {
                file["lfs"] = json!({"sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 130});
            }
            file
        };
        let files: Vec<_> = files().iter().map(file).collect();
        json!({"id": "owner/tiny", "sha": COMMIT, "siblings": files}).to_string().into_bytes()
    }

    impl Hub {
        fn new(mood: Mood) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = format!("http://{}", listener.local_addr().unwrap());
            let asked = Arc::new(Mutex::new(Vec::new()));
            let log = asked.clone();
            thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap(), mood, &log)));
            Self { endpoint, asked }
        }

        fn names(&self) -> BTreeSet<String> {
            let asked = self.asked.lock().unwrap();
            asked.iter().map(|(path, _)| path.rsplit('/').next().unwrap().to_owned()).collect()
        }
    }

    fn answer(mut stream: TcpStream, mood: Mood, log: &Mutex<Vec<Asked>>) {
        let lines: Vec<String> =
            BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let path = lines[0].split(' ').nth(1).unwrap().to_owned();
        let token = lines.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
        });
        log.lock().unwrap().push((path.clone(), token));
        let file = |name: &str| files().into_iter().find(|file| file.0 == name).map(|file| file.1);
        let (mut head, mut body) = ("200 OK".to_owned(), Vec::new());
        if path == "/api/models/owner/tiny/revision/main?blobs=true" {
            body = about();
        } else if let Some(name) = path.strip_prefix(&format!("/owner/tiny/resolve/{COMMIT}/")) {
            if name.ends_with(".safetensors") {
                head = format!("302 Found\r\nLocation: /elsewhere/{name}");
            } else {
                body = file(name).unwrap();
            }
        } else if let Some(name) = path.strip_prefix("/elsewhere/") {
            body = file(name).unwrap();
        } else {
            head = "404 Not Found".to_owned();
        }
        let length = body.len();
        if path.starts_with("/elsewhere/model-00002") {
            match mood {
                Mood::Well => {}
                Mood::BreaksOff => body.truncate(length / 2),
                Mood::Falsifies => *body.last_mut().unwrap() ^= 1,
            }
        }
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &body].concat()).ok();
    }

    #[test]
    fn a_model_is_downloaded_once_into_the_cache_as_others_lay_it_out() {
        let (place, hub) = (Place::new(), Hub::new(Mood::Well));
        let run = ["run", &asset("cat.png"), "-m", "owner/tiny", "-o", "out"];
        let ended = vit(&place, &[("HF_ENDPOINT", &hub.endpoint), ("HF_TOKEN", "secret")], &run);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(place.manifest("out")["model"]["name"], "owner/tiny");

        let model = "hf/hub/models--owner--tiny";
        assert_eq!(fs::read_to_string(place.path(model).join("refs/main")).unwrap(), COMMIT);
        let wanted: Vec<_> = files().into_iter().filter(|(name, _)| name != "README.md").collect();
        let hashes: BTreeSet<String> = wanted.iter().map(|(name, bytes)| hash(name, bytes)).collect();
        assert_eq!(place.files(&format!("{model}/blobs")), hashes);
        for (name, bytes) in &wanted {
            let link = place.path(model).join("snapshots").join(COMMIT).join(name);
            assert_eq!(fs::read(&link).unwrap(), *bytes);
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt as _;
                let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
                let other = place.path("out/manifest.json");
                assert_eq!(rights(&link), rights(&other), "what others may read, they may read in a cache, too");
                assert_eq!(fs::read_link(link).unwrap(), Path::new("../../blobs").join(hash(name, bytes)));
            }
        }
        assert!(!hub.names().contains("README.md"), "only what is read is downloaded");
        for (path, token) in hub.asked.lock().unwrap().iter() {
            let expected = (!path.starts_with("/elsewhere/")).then(|| "Bearer secret".to_owned());
            assert_eq!(*token, expected, "the token is for the hub alone: {path}");
        }

        let before = hub.asked.lock().unwrap().len();
        for id in ["owner/tiny", &format!("owner/tiny@{COMMIT}")] {
            for variables in [[("HF_HUB_OFFLINE", "1")], [("HF_ENDPOINT", hub.endpoint.as_str())]] {
                let ended = vit(&place, &variables, &["info", id]);
                assert_eq!(ended.code, Some(0), "{}", ended.err);
            }
        }
        assert_eq!(hub.asked.lock().unwrap().len(), before, "it was asked for again");
    }

    #[test]
    fn what_breaks_off_or_is_not_what_the_hub_promised_leaves_nothing_that_passes_for_a_model() {
        for (mood, part) in [(Mood::BreaksOff, "model-00002"), (Mood::Falsifies, "are not the hub's")] {
            let (place, hub) = (Place::new(), Hub::new(mood));
            let ended = vit(&place, &[("HF_ENDPOINT", &hub.endpoint)], &["info", "owner/tiny"]);
            assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
            assert!(ended.err.starts_with("vit-attn: error: owner/tiny: "), "{}", ended.err);
            assert!(ended.err.contains(part) && ended.err.lines().count() == 1, "{}", ended.err);
            let blobs = place.files("hf/hub/models--owner--tiny/blobs");
            let whole: BTreeSet<String> = files().iter().map(|(name, bytes)| hash(name, bytes)).collect();
            assert!(!blobs.is_empty() && blobs.is_subset(&whole), "a part is left: {blobs:?}");
            assert_eq!(place.files("hf/hub/models--owner--tiny").len(), 1, "only blobs are there");

            let better = Hub::new(Mood::Well);
            let ended = vit(&place, &[("HF_ENDPOINT", &better.endpoint)], &["info", "owner/tiny"]);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            assert!(!better.names().contains("config.json"), "what is whole is not downloaded again");
        }
    }

    #[test]
    fn a_model_that_the_hub_does_not_have_and_a_hub_that_is_not_there_get_one_sentence() {
        let (place, hub) = (Place::new(), Hub::new(Mood::Well));
        for (endpoint, id, part) in [
            (hub.endpoint.as_str(), "owner/none", "HTTP 404"),
            (&hub.endpoint, "owner/tiny@v2", "HTTP 404"),
            (NOWHERE, "owner/tiny", "cannot be downloaded"),
        ] {
            let ended = vit(&place, &[("HF_ENDPOINT", endpoint)], &["run", &asset("cat.png"), "-m", id]);
            assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
            assert!(ended.err.starts_with(&format!("vit-attn: error: {id}: ")), "{}", ended.err);
            assert!(ended.err.contains(part) && ended.err.lines().count() == 1, "{}", ended.err);
        }
        assert!(!place.path("hf").exists(), "nothing is left");
    }
}
