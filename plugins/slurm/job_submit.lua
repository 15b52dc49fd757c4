-- A job_submit.lua that does nothing but ask Penstock. In a site's own, the two lines with "penstock" are all it takes.
local have, penstock = pcall(dofile, "/etc/slurm/penstock.lua")

function slurm_job_submit(job_desc, part_list, submit_uid)
    if have and not penstock.accepts_job(job_desc) then return slurm.ERROR end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
