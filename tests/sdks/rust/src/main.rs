// SPDX-License-Identifier: Apache-2.0

//! Pyroscope's crate at work on one slow request. It has no bridge to a tracer: the ids of the spans come
//! by TRACE_ID, ROOT_ID and CHILD_ID, and become tags by hand.
use pyroscope::backend::{pprof_backend, BackendConfig, PprofConfig};
use pyroscope::pyroscope::PyroscopeAgentBuilder;
use std::env::var;
use std::hint::black_box;
use std::time::{Duration, Instant};

fn burn(time: Duration) {
    let end = Instant::now() + time;
    let mut sum = 0u64;
    while Instant::now() < end {
        for i in 0..10_000u64 {
            sum = black_box(sum.wrapping_add(i * i));
        }
    }
}

#[inline(never)]
fn root_work(time: Duration) {
    burn(time);
    black_box(());
}

#[inline(never)]
fn child_work(time: Duration) {
    burn(time);
    black_box(());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let part = Duration::from_secs_f64(var("SECONDS")?.parse::<f64>()? / 2.0);
    let (trace, root, child) = (var("TRACE_ID")?, var("ROOT_ID")?, var("CHILD_ID")?);
    let backend = pprof_backend(PprofConfig { sample_rate: 100 }, BackendConfig::default());
    let agent = PyroscopeAgentBuilder::new(var("PYROSCOPE")?, "shop", 100, "pyroscope-rs", "2.1.5", backend)
        .tags(vec![("env", "test"), ("region", "eu west")])
        .build()?;
    let running = agent.start()?;
    let (add, remove) = running.tag_wrapper();
    for (span, work) in [(&root, root_work as fn(Duration)), (&child, child_work)] {
        add("trace_id".into(), trace.clone())?;
        add("span_id".into(), span.clone())?;
        work(part);
        remove("trace_id".into(), trace.clone())?;
        remove("span_id".into(), span.clone())?;
    }
    running.stop()?.shutdown();
    println!("[\"{trace}\",\"{root}\",\"POST /checkout\"]");
    println!("[\"{trace}\",\"{child}\",\"charge card\"]");
    Ok(())
}
