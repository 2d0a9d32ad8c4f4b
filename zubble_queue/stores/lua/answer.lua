#!lua flags=allow-oom
-- id, question id or '' for the open one, kind, answer
-- -> 'given' | 'unknown' | 'sealed' | 'answered' | 'not asking' | 'question' or 'approval': what it waits for instead
local id, question_id, kind = arg(1), arg(2), arg(3)
local record = fields(task_key(id), 'state', 'batch', 'question_id', 'question_kind', 'answer')
if not record[1] then
  return 'unknown'
elseif record[1] == 'sealed' then
  return 'sealed'
elseif record[1] ~= 'awaiting_human' or (question_id ~= '' and question_id ~= record[3]) then
  return record[5] and 'answered' or 'not asking'
elseif kind ~= record[4] then
  return record[4]
end
take_answer(id, record[2], arg(4))
return 'given'
