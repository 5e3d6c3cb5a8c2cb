#!/bin/bash
# `sbatch slurm.sh`: a sweep on the machines of one Slurm job; a job that is cut off is submitted again and goes on.
# Once before: `ray get-auth-token --generate`. The home folder and /shared are the same on all machines.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=08:00:00
set -eu
out=/shared/sweeps/a
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(getent ahostsv4 "$head" | awk '{ print $1; exit }'):6379
if [ -e "$out/sweep.json" ]; then
  words=(resume "$out")
else
  words=(sweep iql --data /shared/visits.tidelog --grid "temperature=1,3,10" --seeds 5 --out "$out")
fi
export RAY_AUTH_MODE=token
srun ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
  env RAY_ADDRESS="$address" tidelog "${words[@]}" --on ray
