-- A cli_filter.lua that does nothing but ask Penstock. In a site's own, the two lines with "penstock" are all it takes.
local have, penstock = pcall(dofile, "/etc/slurm/penstock.lua")

function slurm_cli_setup_defaults(options, early_pass)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
    if have and not penstock.accepts_command(options) then return slurm.ERROR end
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    return slurm.SUCCESS
end

return slurm.SUCCESS
