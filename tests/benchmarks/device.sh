#!/bin/sh
# What a GPU has to answer, in under nine minutes on one, unattended.
#
#   tests/benchmarks/device.sh OUT            on the machine with the GPU
#   tests/benchmarks/device.sh OUT --small    the same parts in seconds, on the CPU; a test runs it
#
# OUT/device.json and OUT/device.md have a row for each figure, written as it is measured; log.txt and
# tests.txt what was printed. A part that fails or takes too long ends alone. The same command again
# does what did not come to its end. The status is the number of parts that did not.
#
# Needs this tree and a Python with torch: $PYTHON, else .venv/bin/python, else python3. No network.
# What that Python lacks of our dependencies (often gymnasium, pydantic, cyclopts, pooch, pysbd)
# comes from wheels for it in the folder $WHEELS (`pip download --only-binary=:all: -d WHEELS ...`),
# unpacked beside the results. Without Ray, which is large, the part `samplers` fails and a test is
# skipped.
#   MINILM=FOLDER   all-MiniLM-L6-v2 as saved by save_pretrained; else random weights in its shape
#   CR=TABLE        with columns text and label, to fit; else the product reviews of the package
set -u
[ $# -ge 1 ] || { sed -n '2,5p' "$0" >&2; exit 64; }
out=$1 small=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out/scratch"
out=$(cd "$out" && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3
site=$out/scratch/site
if [ -n "${WHEELS:-}" ] && [ ! -d "$site" ]; then
  for wheel in "$WHEELS"/*.whl; do "$python" -m zipfile -e "$wheel" "$site"; done
fi
tests=$root/tests
export PYTHONPATH="$root:$tests/benchmarks:$tests/support:$site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
failed=0
# Without a GPU: the smallest sizes, and more time for them.
longer=1
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || longer=3
# A part, and its limit in seconds: 520 in all.
part() {
  limit=$(($1 * longer))
  shift
  timeout -k 5 "$limit" "$python" "$tests/benchmarks/device.py" "$out" "$@" --limit "$limit" >>"$out/log.txt" 2>&1
  status=$?
  echo "$*: $([ $status = 0 ] && echo done || echo "status $status, see $out/log.txt")"
  [ $status = 0 ] || failed=$((failed + 1))
}
if [ "$small" = --small ]; then
  part 300 tests updates compiled attention transformer fit learners samplers --small
else
  part 90 updates
  part 40 transformer
  part 100 compiled
  part 25 attention
  part 95 fit
  part 35 learners
  part 55 samplers
  part 80 tests
fi
exit "$failed"
