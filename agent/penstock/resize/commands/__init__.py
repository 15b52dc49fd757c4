"""Commands of elastic jobs, and what `penstock sbatch` asks for moldable ones."""
