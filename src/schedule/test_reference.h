// The recurrence once more, with a queue of micro-batches at every station and a list of every event, written
// before and apart from schedule/recurrence.h: what tests hold that one against.
#pragma once

#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {

// What schedule_pipeline() says, REQUIRES: likewise.
PipelineSchedule reference_schedule(const PipelineLoad& load);

}  // namespace sluice::schedule
