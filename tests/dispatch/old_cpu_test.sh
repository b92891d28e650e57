#!/usr/bin/env bash
# Runs the reference fixtures on an emulated CPU without AVX. usage: old_cpu_test.sh PROGRAM SOURCE_FOLDER
set -euo pipefail
if ! command -v qemu-x86_64 >/dev/null; then
  echo "skipped: qemu-x86_64 not found (package qemu-user)"
  exit 77
fi
qemu-x86_64 -cpu Nehalem "$1" verify "$2/tests/reference/fixtures" --precision f64 --device cpu
if SOME_CPU=x86-64-v3 qemu-x86_64 -cpu Nehalem "$1" info tiny 2>/dev/null; then
  echo "the x86-64-v3 version was accepted on a CPU without AVX2"
  exit 1
fi
