--[[
penstock.lua refuses a malleable request that cannot be meant, when it is submitted, and says what would be right.

A site's job_submit.lua and cli_filter.lua call it in two lines, as those beside this file do:

    local have, penstock = pcall(dofile, "/etc/slurm/penstock.lua")
    ...
    if have and not penstock.accepts_job(job_desc) then return slurm.ERROR end      -- job_submit.lua
    if have and not penstock.accepts_command(options) then return slurm.ERROR end   -- cli_filter.lua

The rules and the words are those of `penstock sbatch`. They are applied to `#PENSTOCK malleable=...` in a job's script
and to DMR_SIZES in its environment, which counts more; a job that has neither is let through as it is. Nothing of a job
is ever changed. An error in here is logged, and the job goes through.

One script's head and one environment are read: no files, no commands, no other jobs. For Lua 5.1 to 5.5 and LuaJIT.
]]

local M = {}

local VARIABLE = "DMR_SIZES" -- `penstock sbatch` puts the limits there, for the program to find
local LONGEST_HEAD = 16384 -- bytes of a script that are looked through
local LONGEST_SIZES = 43 -- bytes: four numbers of ten digits
local LONGEST_QUOTE = 60 -- bytes of a user's words that a message repeats
local MOST = 2147483647
-- What Slurm has in a number that nobody has set: the values of NO_VAL16 and NO_VAL, in all releases.
local UNSET_16, UNSET_32 = 65534, 4294967294
-- Characters, as Python sees them: Lua's %s lacks the last three or four.
local SPACE, LINE_END = "[ \t\n\v\f\r\28-\31]", "[\n\v\f\r\28-\30]"

-- A user's words, so that they do no harm in a terminal.
local function quoted(text)
    text = text:sub(1, LONGEST_QUOTE)
    local mark = (text:find("'", 1, true) and not text:find('"', 1, true)) and '"' or "'"
    local short = { ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
    local safe = text:gsub("[%c\\'\127-\255]", function(c)
        if c == "'" then return mark == "'" and "\\'" or c end
        return short[c] or string.format("\\x%02x", c:byte())
    end)
    return mark .. safe .. mark
end

-- What is wrong with the sizes "min:max[:preferred[:factor]]"; nil: nothing.
local function wrong_sizes(text)
    local parts, sound = {}, #text <= LONGEST_SIZES
    for part in (sound and text .. ":" or ""):gmatch("([^:]*):") do
        local number = part:find("^[0-9]+$") and #part <= 10 and tonumber(part) or 0
        sound = sound and number >= 1 and number <= MOST
        parts[#parts + 1] = number
    end
    if not sound or #parts < 2 or #parts > 4 then
        local form = "must be min:max[:preferred[:factor]] in processes, such as 2:32:8:2, not "
        return form .. quoted(text)
    end
    local least, most, preferred = parts[1], parts[2], parts[3]
    if least > most then
        return string.format("the minimum %d is above the maximum %d", least, most)
    end
    if preferred and (preferred < least or preferred > most) then
        return string.format("the preferred size %d is outside %d..%d", preferred, least, most)
    end
    return nil
end

-- The numbers and texts of the lines up to the first that is neither empty nor a comment; `cut`: more follows.
local function comments(head, cut)
    local position, number = 1, 0
    return function()
        local stop = head:find(LINE_END, position) or #head + 1
        if position > #head or (cut and stop > #head) then return nil end
        local line = head:sub(position, stop - 1)
        if line:find("^" .. SPACE .. "*[^#" .. SPACE:sub(2)) then return nil end
        position = stop + (head:sub(stop, stop + 1) == "\r\n" and 2 or 1)
        number = number + 1
        return number, line
    end
end

-- The inside of the double quotes that open at this position, and where they close; nil: they do not.
local function in_double_quotes(text, position)
    local parts = {}
    local start = position + 1
    while true do
        local at = text:find('["\\]', start)
        if not at then return nil, nil, "No closing quotation" end
        parts[#parts + 1] = text:sub(start, at - 1)
        if text:sub(at, at) == '"' then return table.concat(parts), at end
        local escaped = text:sub(at + 1, at + 1)
        if escaped == "" then return nil, nil, "No escaped character" end
        parts[#parts + 1] = (escaped == '"' or escaped == "\\") and escaped or "\\" .. escaped
        start = at + 2
    end
end

-- The words of a line, as a shell and Python's shlex read them, up to a "#"; nil and why: it cannot be read.
local function words(text)
    local found, parts, position = {}, nil, 1 -- `parts` of the present word; nil between words
    local function finish()
        if parts then found[#found + 1] = table.concat(parts) end
        parts = nil
    end
    while position <= #text do
        local first = text:sub(position, position)
        if first == "#" then break end
        if first:find("[ \t\r\n]") then
            finish()
        else
            local piece, last, problem
            if first == "'" then
                last = text:find("'", position + 1, true)
                if not last then return nil, "No closing quotation" end
                piece = text:sub(position + 1, last - 1)
            elseif first == '"' then
                piece, last, problem = in_double_quotes(text, position)
                if not piece then return nil, problem end
            elseif first == "\\" then
                last = position + 1
                piece = text:sub(last, last)
                if piece == "" then return nil, "No escaped character" end
            else
                piece = text:match("^[^ \t\r\n#'\"\\]+", position)
                last = position + #piece - 1
            end
            parts = parts or {}
            parts[#parts + 1] = piece
            position = last
        end
        position = position + 1
    end
    finish()
    return found
end

-- What a script's #PENSTOCK lines say of `malleable` and where, nil: nothing; or nil, nil, what is wrong with them.
local function written(script)
    local value, where
    local head = script:sub(1, LONGEST_HEAD)
    if not head:find("#PENSTOCK", 1, true) then return nil end
    for number, line in comments(head, #script > #head) do
        local rest = line:match("^#PENSTOCK(.*)$")
        if rest and (rest == "" or rest:find("^" .. SPACE)) then
            local here = "script:" .. number
            local said, problem = words(rest)
            if not said then return nil, nil, here .. ": #PENSTOCK cannot be read: " .. problem end
            for _, word in ipairs(said) do
                local key, equals, text = word:match("^([^=]*)(=?)(.*)$")
                if key == "malleable" then
                    if equals == "" then
                        return nil, nil, here .. ": #PENSTOCK malleable needs a value: malleable=..."
                    end
                    if where then
                        return nil, nil, here .. ": #PENSTOCK malleable= was given in " .. where .. " already"
                    end
                    value, where = text, here
                end
            end
        end
    end
    return value, where
end

-- Whether the user has said how large the job is to be at its start.
local function has_size(job)
    local nodes, tasks = job.min_nodes or UNSET_32, job.num_tasks or UNSET_32
    return nodes < UNSET_32
        -- sbatch 22.05 itself puts as many there as --ntasks-per-node says.
        or (tasks < UNSET_32 and tasks ~= job.ntasks_per_node)
        or (job.req_nodes or "") ~= ""
        or (job.tres_per_job or ""):find("gpu", 1, true) ~= nil
end

local function processes_per_node(job, environment)
    local said = job.ntasks_per_node
    if said and said > 0 and said < UNSET_16 then return said end
    local text = environment.DMR_RANKS_PER_NODE or ""
    return text:find("^[0-9]+$") and #text <= 10 and tonumber(text) > 0 and tonumber(text) or 1
end

-- What is wrong with a batch job, nil: nothing; and what its user should know.
local function judge_job(job)
    local script = job.script
    if not script then return nil end -- of salloc or srun, whose environment Slurm does not show either
    local environment = job.environment or {}
    local value, where, problem = written(script)
    if problem then return problem end
    local forced = environment[VARIABLE]
    if forced == "" then forced = nil end
    local effective = forced or value
    if not effective then return nil end
    problem = wrong_sizes(effective)
    if problem then return (forced and VARIABLE or where) .. ": malleable: " .. problem end
    if not has_size(job) then
        local least, most = effective:match("^([0-9]+):([0-9]+)")
        local per_node = processes_per_node(job, environment)
        if math.ceil(least / per_node) > math.floor(most / per_node) then
            return string.format("malleable=%s: no size of it fills whole nodes of %d processes", effective, per_node)
        end
    end
    if forced then return nil end
    return nil, where .. ": malleable=" .. value .. " has no effect: only `penstock sbatch`, with an agent, gives it one"
end

-- The same of a command: of its environment, for the script is in a file, and slurmctld shows it to `judge_job`.
local function judge_command(options)
    local value = os.getenv(VARIABLE) or ""
    if value == "" then return nil end
    local kind = options.type
    if kind == "srun" and os.getenv("SLURM_JOB_ID") then return nil end -- a step: its job was looked at
    local exported = kind ~= "salloc" and options.export or "ALL"
    if not exported:find("ALL", 1, true) and not exported:find(VARIABLE, 1, true) then return nil end
    local problem = wrong_sizes(value)
    return problem and VARIABLE .. ": malleable: " .. problem
end

-- Whether the subject may pass, which it always may where the judge fails. `log`: the function of `slurm` that the user
-- hears: log_user in slurmctld; in a command log_error, for log_user is missing there, and of no use in 26.05.
local function passes(judge, subject, log)
    local judged, problem, advice = pcall(judge, subject)
    if not judged then
        local line = "penstock.lua: " .. tostring(problem) .. "; it goes through unchanged"
        pcall(function() slurm.log_error("%s", line) end)
        return true
    end
    local text = problem or advice
    if text then
        pcall(function() slurm[log]("%s", "penstock: " .. text) end)
    end
    return problem == nil
end

--- For slurm_job_submit: false when the job is to be refused, which its user has been told.
function M.accepts_job(job_desc)
    return passes(judge_job, job_desc, "log_user")
end

--- For slurm_cli_pre_submit: false when the command is to be refused, which its user has been told.
function M.accepts_command(options)
    return passes(judge_command, options, "log_error")
end

return M
