use vit_attn::{train::*, model::*, device};
use std::time::Instant;
fn main() {
    let b: device::Choice = std::env::args().nth(1).unwrap_or("flex".into()).parse().unwrap();
    let n: usize = std::env::args().nth(2).unwrap_or("20".into()).parse().unwrap();
    let opened = device::open(b, None).unwrap();
    let split = data::open(std::path::Path::new("/tmp/cifar/bin"), (32,32), 0.1, 0, &|_,_| ()).unwrap();
    let plan = Plan { epochs: 1, batch_size: 128, learning_rate: 2e-3, warmup: 0, weight_decay: 0.05, label_smoothing: 0.1, augment: Default::default(), seed: 0 };
    let mut t = Trainer::new(&ViTConfig::default(), plan, &opened.device).unwrap();
    let order = t.order(&split.train);
    for i in 0..n {
        let s = Instant::now();
        t.advance(&split.train, &order).unwrap();
        if i % 5 == 4 { println!("{i} {:?} loss {} acc {}", s.elapsed(), t.tally.mean_loss(), t.tally.accuracy()); }
    }
}
