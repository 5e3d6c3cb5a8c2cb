#!/usr/bin/env bash
# Measures everything on a GPU in at most 38 minutes: `bash benchmarks/gpu.sh [STEP ...]`, from anywhere.
# Each step has its own process, time limit and file under benchmarks/results; a step that fails does not stop the
# others, and the last line names those that failed. TIDELOG_TINY=1 runs tiny sizes on any device; TIDELOG_RESULTS
# is another folder for the files.
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
declare -A limits=([iql]=300 [bcq]=360 [discrete_bcq]=240 [bc]=180 [pictures]=360 [decisions]=360 [top_k]=120 [judge]=360)
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(iql bcq discrete_bcq bc pictures decisions top_k judge)
failed=()
for step in "${steps[@]}"; do
  if timeout -k 10 "${limits[$step]:-60}" "$python" -m benchmarks gpu "$step"; then
    echo "$step: done after $SECONDS s"
  else
    code=$?
    [ $code = 124 ] && reason="time limit of ${limits[$step]:-60} s" || reason="exit code $code"
    echo "$step: FAILED ($reason)" >&2
    failed+=("$step")
  fi
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
