//! `vit-attn compare`: backends, models or another program's attention, held against each other on one picture.

use std::{env, io, path::Path, time::Instant};

use anyhow::{anyhow, bail};
use serde::Serialize;

use super::common::{self, Unavailable};
use crate::{
    checkpoint::Checkpoint,
    cli::{
        args::CompareArgs,
        output, progress,
        talk::{hand_out, say},
    },
    compare::{self, LayerDifference, Place},
    device::{Adapter, Choice, Opened},
    error::{Error, Result},
    inspect::{self, Wanted},
    map::{Artifact, MapSet},
    model::{Queries, ViT},
    picture::{self, ModelInput, Picture},
    record::{AttentionRecord, ProbeAttention, TokenLayout},
    reference::{self, Shape},
    render::{
        Drawing, Style,
        colormap::Colormap,
        difference::{self, Panel},
        heatmap,
        manifest::{self, Stage},
        scale::Scale,
        sheet::{self, Caption},
    },
    select::Picks,
    views::View,
};

/// The largest difference of a weight that backends and references may have.
const TOLERANCE: f64 = 1e-4;

/// Compares, prints, draws; fails where a difference is beyond the tolerance.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        output::check(out, args.force)?;
    }
    let picture = picture::load(&args.image)?;
    let (mut report, mut artifacts) =
        if args.models.is_empty() { backends(args, &picture)? } else { models(args, &picture)? };
    if args.out.is_some() && !report.pairs.is_empty() {
        artifacts.push(draw(&report)?);
    }
    publish(args, &mut report, artifacts)?;
    verdict(args, &report)
}

/// Attention from one source.
struct Side {
    name: String,
    adapter: Option<Adapter>,
    seconds: Vec<Stage>,
    record: AttentionRecord,
    probe: Option<ProbeAttention>,
    logits: Option<Vec<f32>>,
}

/// Everything that was found.
#[derive(Serialize)]
struct Report {
    schema: u32,
    tool_version: &'static str,
    command: Vec<String>,
    input: manifest::Input,
    models: Vec<String>,
    tokens: TokenLayout,
    layers: Vec<usize>,
    tolerance: Option<f64>,
    within_tolerance: Option<bool>,
    sources: Vec<Source>,
    unavailable: Vec<Unavailable>,
    pairs: Vec<Pair>,
    files: Vec<String>,
}

#[derive(Serialize)]
struct Source {
    name: String,
    adapter: Option<Adapter>,
    seconds: Vec<Stage>,
}

#[derive(Serialize)]
struct Pair {
    first: String,
    second: String,
    worst: Option<Place>,
    logits_max_abs: Option<f64>,
    layers: Vec<LayerDifference>,
}

impl Pair {
    fn new(first: &Side, second: &Side) -> Result<Self> {
        let layers = compare::attention(&first.record, &second.record)?;
        let logits = first.logits.as_ref().zip(second.logits.as_ref());
        Ok(Self {
            first: first.name.clone(),
            second: second.name.clone(),
            worst: compare::worst(&layers),
            logits_max_abs: logits.and_then(|(a, b)| compare::max_abs(a, b)),
            layers,
        })
    }

    /// Whether a class score of either is no number.
    fn no_logits(&self) -> bool {
        self.logits_max_abs.is_some_and(f64::is_nan)
    }

    /// The worst place, if it is beyond the tolerance.
    fn beyond(&self, tolerance: f64) -> Option<Place> {
        self.worst.filter(|worst| worst.difference() > tolerance || worst.difference().is_nan())
    }
}

impl Report {
    fn new(picture: &Picture, models: Vec<String>, sides: Vec<Side>, pairs: Vec<Pair>) -> anyhow::Result<Self> {
        let record = &sides.first().ok_or_else(|| anyhow!("no backend could run the model"))?.record;
        Ok(Self {
            schema: manifest::SCHEMA,
            tool_version: env!("CARGO_PKG_VERSION"),
            command: env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            input: manifest::Input {
                path: picture.path.display().to_string(),
                width: picture.pixels.width(),
                height: picture.pixels.height(),
                sha256: picture.sha256.clone(),
            },
            models,
            tokens: record.tokens.clone(),
            layers: record.layers.iter().map(|layer| layer.layer).collect(),
            tolerance: None,
            within_tolerance: None,
            sources: sides
                .into_iter()
                .map(|side| Source { name: side.name, adapter: side.adapter, seconds: side.seconds })
                .collect(),
            unavailable: Vec::new(),
            pairs,
            files: Vec::new(),
        })
    }

    fn judge(&mut self, tolerance: f64) {
        self.tolerance = Some(tolerance);
        self.within_tolerance =
            Some(self.pairs.iter().all(|pair| pair.beyond(tolerance).is_none() && !pair.no_logits()));
    }
}

/// One model on several backends, against each other or against a reference.
fn backends(args: &CompareArgs, picture: &Picture) -> anyhow::Result<(Report, Vec<Artifact>)> {
    let (name, checkpoint) = common::open_model(args.model.as_deref(), &args.checkpoint.options())?;
    let input = checkpoint.recipe.apply(picture, checkpoint.config.patch_size)?;
    let picks = args.layers.as_ref().map(|picks| picks.resolve("--layers", checkpoint.config.depth)).transpose()?;
    let reference =
        args.reference.as_ref().map(|path| read_reference(path, &checkpoint, picks.as_deref())).transpose()?;
    let layers = match &reference {
        Some(side) => side.record.layers.iter().map(|layer| layer.layer).collect(),
        None => picks.unwrap_or_else(|| (0..checkpoint.config.depth).collect()),
    };
    let (opened, mut unavailable) = common::open_backends(&args.places)?;
    let mut sides: Vec<Side> = reference.into_iter().collect();
    let wanted = Wanted { layers, queries: Queries::All, probe: false, tokens: false };
    common::check_memory(&checkpoint.config, &wanted, sides.len() + opened.len())?;
    for opened in &opened {
        match attend(opened.backend.to_string(), &checkpoint, opened, (&input, &wanted)) {
            Ok(side) => sides.push(side),
            Err(error) => unavailable.push(Unavailable::tell(opened.backend, &error)),
        }
    }
    if sides.len() < 2 {
        let Some(side) = sides.first() else { bail!("no backend gave attention to compare") };
        let name = &side.name;
        bail!("only {name} gave attention: comparing needs a second backend, a --reference, or --models");
    }
    let firsts = if args.reference.is_some() { 1 } else { sides.len() };
    let mut pairs = Vec::new();
    for (index, first) in sides.iter().enumerate().take(firsts) {
        for second in &sides[index + 1..] {
            pairs.push(Pair::new(first, second)?);
        }
    }
    let mut report = Report::new(picture, vec![name], sides, pairs)?;
    report.unavailable = unavailable;
    report.judge(args.tolerance.unwrap_or(TOLERANCE));
    Ok((report, Vec::new()))
}

/// How far the sum of a reference's row may be from one before a person is told; half precision stays well below.
const ROW_SUM: f32 = 0.01;

fn read_reference(path: &Path, checkpoint: &Checkpoint, layers: Option<&[usize]>) -> Result<Side> {
    let started = Instant::now();
    let config = &checkpoint.config;
    let shape = Shape { tokens: config.layout(), depth: config.depth, heads: config.heads };
    let record = reference::open(path, &shape, layers)?;
    let error = record.layers.iter().map(|layer| layer.row_sum_error()).fold(0.0, f32::max);
    if error > ROW_SUM {
        let name = path.display();
        say(format!(
            "vit-attn: {name}: rows are off a sum of one by up to {error:.2}; are they softmax weights, queries by keys?"
        ));
    }
    let seconds = vec![Stage::new("load", started.elapsed())];
    Ok(Side { name: path.display().to_string(), adapter: None, seconds, record, probe: None, logits: None })
}

/// Runs a model twice, and keeps the attention and the times of the second run.
fn attend(
    name: String,
    checkpoint: &Checkpoint,
    opened: &Opened,
    (input, wanted): (&ModelInput, &Wanted),
) -> Result<Side> {
    let mut started = Instant::now();
    let mut seconds = Vec::new();
    let mut stage = |name| {
        seconds.push(Stage::new(name, started.elapsed()));
        started = Instant::now();
    };
    let model = ViT::new(&checkpoint.config, &opened.device, |name, shape| checkpoint.fetch(name, shape))?;
    stage("load");
    let see = || inspect::inspect(&model, opened, &input.pixels, wanted, || ());
    progress::run_on(opened.backend, see)?;
    stage("first run");
    let mut seen = see()?;
    stage("warm run");
    let record = seen.attention.pop().ok_or_else(|| Error::Numbers("the model saw no picture".to_owned()))?;
    let logits = seen.logits.and_then(|mut logits| logits.pop());
    let probe = seen.probe.and_then(|mut probe| probe.pop());
    Ok(Side { name, adapter: opened.adapter.clone(), seconds, record, probe, logits })
}

/// Two models on one backend.
fn models(args: &CompareArgs, picture: &Picture) -> anyhow::Result<(Report, Vec<Artifact>)> {
    let given = args.models.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",");
    let [first, second] = args.models.as_slice() else {
        bail!(Error::selection("--models", given, "expected two checkpoints with a comma between"));
    };
    let choice = match args.places.backends.as_slice() {
        [] => Choice::Auto,
        [one] => *one,
        _ => {
            let names = args.places.backends.iter().map(Choice::to_string).collect::<Vec<_>>().join(",");
            bail!(Error::selection("--backends", names, "two models are compared on one backend; name one"));
        }
    };
    let opened = common::open_backend(choice, args.places.device)?;
    if let Some(note) = &opened.note {
        say(format!("vit-attn: {note}"));
    }
    let first = Viewed::new(args, first, picture, &opened)?;
    let second = Viewed::new(args, second, picture, &opened)?;
    let alike = first.side.record.tokens == second.side.record.tokens;
    fit(&first, &second, alike || args.out.is_some())
        .map_err(|valid| Error::selection("--models", given.as_str(), valid))?;
    let artifacts = if args.out.is_some() { maps(picture, &first, &second)? } else { Vec::new() };
    let pairs = if alike { vec![Pair::new(&first.side, &second.side)?] } else { Vec::new() };
    let names = vec![first.side.name.clone(), second.side.name.clone()];
    let mut report = Report::new(picture, names, vec![first.side, second.side], pairs)?;
    if let Some(tolerance) = args.tolerance {
        report.judge(tolerance);
    }
    Ok((report, artifacts))
}

/// One of two models, with its maps.
struct Viewed {
    side: Side,
    maps: MapSet,
    input: ModelInput,
}

impl Viewed {
    fn new(args: &CompareArgs, path: &Path, picture: &Picture, opened: &Opened) -> Result<Self> {
        let (name, checkpoint) = common::open_model(Some(path), &args.checkpoint.options())?;
        let config = &checkpoint.config;
        let input = checkpoint.recipe.apply(picture, config.patch_size)?;
        let layers = args.layers.clone().unwrap_or_else(Picks::all).resolve("--layers", config.depth)?;
        let tokens = config.layout();
        let view = args.view.unwrap_or_else(|| View::default_for(&tokens, false));
        let view = view.resolve(&tokens, config.probe, &input.geometry)?;
        let wanted = Wanted { layers, queries: Queries::All, probe: view.asks_probe(), tokens: false };
        common::check_memory(config, &wanted, 2)?;
        let side = attend(name, &checkpoint, opened, (&input, &wanted))?;
        let maps = view.maps(&side.record, side.probe.as_ref(), &(0..config.heads).collect::<Vec<_>>())?;
        Ok(Self { side, maps, input })
    }
}

/// Refuses two models whose maps do not lie on each other. With other tokens before the patches there are maps only,
/// for which there must be a `place`.
fn fit(first: &Viewed, second: &Viewed, place: bool) -> Result<(), String> {
    let (a, b) = (&first.side.record.tokens, &second.side.record.tokens);
    if a.grid != b.grid {
        let grids = [a, b].map(|tokens| format!("{} x {}", tokens.grid.0, tokens.grid.1)).join(" and ");
        return Err(format!("their patches differ ({grids}), so that no weight of one belongs to one of the other"));
    }
    let layers = |model: &Viewed| model.side.record.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>();
    if layers(first) != layers(second) {
        let counts = [first, second].map(|model| layers(model).len().to_string()).join(" and ");
        return Err(format!("they have different layers ({counts}); name those that both have with --layers"));
    }
    if first.maps.heads != second.maps.heads {
        let counts = [first, second].map(|model| model.maps.heads.len().to_string()).join(" and ");
        return Err(format!("they have different numbers of heads ({counts}), so that heads cannot be paired"));
    }
    if !place {
        let counts = [a, b].map(|tokens| tokens.prefix.len().to_string()).join(" and ");
        return Err(format!(
            "they have different tokens before the patches ({counts}), so there are maps only: name a directory with --out"
        ));
    }
    Ok(())
}

/// The second model's maps minus the first's, in colours around zero.
fn maps(picture: &Picture, first: &Viewed, second: &Viewed) -> Result<Vec<Artifact>> {
    let maps = compare::maps(&first.maps, &second.maps)?;
    let most = maps.maps.iter().flat_map(|map| &map.values).fold(0.0, |most: f32, value| most.max(value.abs()));
    let scale = if most > 0.0 { Scale::Fixed(-round_up(most), round_up(most)) } else { Scale::All };
    let drawing = Drawing::new(&maps, Style { scale, colormap: Colormap::BlueRed, ..Style::default() })?;
    let names = format!("{} minus {}", second.side.name, first.side.name);
    let path = picture.path.display().to_string();
    let caption = Caption { seen: &second.input.seen, picture: &path, model: &names };
    heatmap::files(&drawing).chain([sheet::file(&drawing, &caption)]).collect()
}

/// The next number with two digits.
fn round_up(value: f32) -> f32 {
    let step = 10f64.powf(f64::from(value).log10().floor() - 1.0);
    ((f64::from(value) / step).ceil() * step) as f32
}

/// The picture of all pairs.
fn draw(report: &Report) -> Result<Artifact> {
    let panel = |pair: &Pair| Panel {
        title: format!("{} and {}", pair.first, pair.second),
        layers: pair.layers.iter().map(|layer| layer.layer).collect(),
        differences: pair.layers.iter().map(|layer| layer.max_abs_by_head.clone()).collect(),
    };
    let panels: Vec<Panel> = report.pairs.iter().map(panel).collect();
    difference::file(&panels, report.tolerance, &format!("{} · {}", report.input.path, report.models.join(" · ")))
}

/// Writes the files and prints the report.
fn publish(args: &CompareArgs, report: &mut Report, mut artifacts: Vec<Artifact>) -> anyhow::Result<()> {
    report.files = artifacts.iter().map(|artifact| artifact.name.clone()).collect();
    let mut json = serde_json::to_vec_pretty(&report)?;
    json.push(b'\n');
    if let Some(out) = &args.out {
        artifacts.push(Artifact { name: output::MANIFEST.to_owned(), bytes: json.clone() });
        output::prepare(out)?;
        output::clear(out, &args.image)?;
        output::write_all(out, artifacts.iter().map(Ok), output::may_replace(out, args.force, &args.image))?;
        say(format!("vit-attn: wrote {} files to {}", artifacts.len(), out.display()));
    }
    if args.json {
        return hand_out(&json);
    }
    let mut text = Vec::new();
    print(&mut text, report)?;
    hand_out(&text)
}

fn print(out: &mut impl io::Write, report: &Report) -> io::Result<()> {
    let (grid, tokens) = (report.tokens.grid, report.tokens.tokens());
    writeln!(out, "{}: {tokens} tokens, patches {} x {}", report.input.path, grid.0, grid.1)?;
    for pair in &report.pairs {
        writeln!(out, "\n{} and {}", pair.first, pair.second)?;
        writeln!(out, "  layer  max difference  mean difference  max KL (nats)  same strongest patch")?;
        for layer in &pair.layers {
            let [max, mean, kl] = [layer.max_abs, layer.mean_abs, layer.max_kl].map(short);
            let (layer, same) = (layer.layer, 100.0 * layer.same_top);
            writeln!(out, "  {layer:>5}  {max:>14}  {mean:>15}  {kl:>13}  {same:>18.2} %")?;
        }
        if let Some(logits) = pair.logits_max_abs {
            writeln!(out, "  logits: largest difference {}", short(logits))?;
        }
        if let Some(worst) = pair.beyond(0.0) {
            writeln!(out, "  worst: {}", describe(&worst, &report.tokens))?;
        }
    }
    writeln!(out, "\nseconds")?;
    for source in &report.sources {
        let stages = source.seconds.iter().map(|stage| format!("{} {:.4}", stage.stage, stage.seconds));
        writeln!(out, "  {}: {}", source.name, stages.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

fn short(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

/// A place in words.
fn describe(place: &Place, tokens: &TokenLayout) -> String {
    let Place { layer, head, query, key, first, second } = place;
    let token = |index: usize| format!("{index} ({})", tokens.name(index));
    format!("layer {layer}, head {head}, query {}, key {}: {first} and {second}", token(*query), token(*key))
}

/// Fails where a difference is beyond the tolerance, or a backend that was asked for by name could not run.
fn verdict(args: &CompareArgs, report: &Report) -> anyhow::Result<()> {
    let beyond = |tolerance: f64| {
        let places = report.pairs.iter().filter_map(|pair| Some((pair, pair.beyond(tolerance)?)));
        // The pairs' worst places are finite here, or NaN, which counts as the largest.
        places.max_by(|a, b| a.1.difference().total_cmp(&b.1.difference()))
    };
    if let Some((tolerance, (pair, worst))) = report.tolerance.and_then(|t| Some((t, beyond(t)?))) {
        let (place, difference) = (describe(&worst, &report.tokens), worst.difference());
        bail!(
            "{} and {} differ by {difference:.1e}, beyond the tolerance of {tolerance:e}, in {place}",
            pair.first,
            pair.second
        );
    }
    if let (Some(_), Some(pair)) = (report.tolerance, report.pairs.iter().find(|pair| pair.no_logits())) {
        bail!("class scores of {} or {} are not finite", pair.first, pair.second);
    }
    if !args.places.backends.is_empty() && !report.unavailable.is_empty() {
        let names: Vec<&str> = report.unavailable.iter().map(|left| left.backend.as_str()).collect();
        bail!("{} could not run here; the others were compared", names.join(", "));
    }
    Ok(())
}
