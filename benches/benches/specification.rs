//! The digest of a specification beside the hash of its canonical bytes.

use std::hint::black_box;

use criterion::{Criterion, criterion_group};
use palisade_benches::summary;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::units::Digest;

const RESOURCES: &str = r#"{"resources":{"cpus":2,"memory_mib":4096}}"#;

fn digest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("specification");
    let specification = Specification::parse(Provider::E2b, RESOURCES.as_bytes()).expect("a valid specification");
    group.bench_function("parse", |b| b.iter(|| Specification::parse(Provider::E2b, black_box(RESOURCES.as_bytes()))));
    group.bench_function("digest", |b| b.iter(|| black_box(&specification).digest()));
    let canonical = specification.canonical();
    group.bench_function("hash_alone", |b| b.iter(|| Digest::of(black_box(&canonical))));
    group.finish();
}

criterion_group!(benches, digest);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    let ratio = summary::ratio("specification", "digest", "hash_alone");
    println!("\ndigest of a specification to the hash of its canonical bytes: {ratio}");
}
