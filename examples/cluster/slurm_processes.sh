#!/bin/bash
# `sbatch slurm_processes.sh`: one training whose batches the devices of several machines share.
# Where a process is lost, all of them end and start again from the last checkpoint; so does a job that is submitted again.
# /shared is the same on all machines.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=08:00:00
set -eu
out=/shared/runs/iql
for _ in 1 2 3 4 5; do
  if [ -e "$out/checkpoints" ]; then
    words=(resume "$out")
  else
    words=(train iql --data /shared/visits.tidelog --batch-size 8192 --out "$out" --overwrite)
  fi
  code=0
  srun tidelog "${words[@]}" --coordinator auto || code=$?
  case "$code" in 0 | 2 | 130 | 143) exit "$code" ;; esac # done, refused, or stopped by a signal
done
exit "$code"
