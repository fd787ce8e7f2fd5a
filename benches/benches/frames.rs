//! Decoding and encoding beside plain `serde_json` into the same shape and beside a copy of the bytes.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, measurement::WallTime};
use palisade_benches::{plain, sample, summary};
use palisade_core::wire::{decode, encode_into};
use serde::{Deserialize, Serialize};

const MIB: usize = 1 << 20;

/// The six measurements that every frame has.
fn frame<'a, P: Serialize + Deserialize<'a>>(group: &mut BenchmarkGroup<'_, WallTime>, text: &'a str) {
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("decode", |b| b.iter(|| decode(black_box(text.as_bytes())).expect("a valid frame")));
    group.bench_function("decode_plain", |b| {
        b.iter(|| serde_json::from_slice::<P>(black_box(text.as_bytes())).expect("a valid frame"));
    });
    let (decoded, mut out) = (decode(text.as_bytes()).expect("a valid frame"), Vec::new());
    group.bench_function("encode", |b| b.iter(|| encode_into(black_box(&decoded), &mut out).expect("a valid frame")));
    let decoded: P = serde_json::from_str(text).expect("a valid frame");
    group.bench_function("encode_plain", |b| {
        b.iter(|| {
            out.clear();
            serde_json::to_writer(&mut out, black_box(&decoded)).expect("a valid frame");
        });
    });
    group.bench_function("copy", |b| b.iter(|| black_box(text.as_bytes()).to_vec()));
}

fn small(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("heartbeat_of_eight");
    frame::<plain::Heartbeat<'_>>(&mut group, &sample::heartbeat());
    group.finish();
    let mut group = criterion.benchmark_group("small_request");
    frame::<plain::RequestFrame<'_>>(&mut group, &sample::small_request());
    group.finish();
}

fn large(criterion: &mut Criterion) {
    let text = sample::command_request(64 * MIB);
    let mut group = criterion.benchmark_group("command_64_mib");
    group
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    frame::<plain::RequestFrame<'_>>(&mut group, &text);
    let stdin = "aGVsbG8K".repeat(8 * MIB);
    group.bench_function("base64_alone", |b| {
        b.iter(|| base64_simd::STANDARD.decode_to_vec(black_box(&stdin)).expect("base64"));
    });
    group.finish();

    let text = sample::command_response(32 * MIB);
    let mut group = criterion.benchmark_group("response_32_mib");
    group
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    frame::<plain::ResponseFrame<'_>>(&mut group, &text);
    group.bench_function("utf8_and_scan_alone", |b| {
        b.iter(|| {
            let text = std::str::from_utf8(black_box(text.as_bytes())).expect("UTF-8");
            text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
        });
    });
    group.finish();
}

criterion_group!(benches, small, large);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    summary::frames(&[
        ("heartbeat_of_eight", None),
        ("small_request", None),
        ("command_64_mib", Some("base64_alone")),
        ("response_32_mib", Some("utf8_and_scan_alone")),
    ]);
}
