// A second implementation of the recurrence, with a queue of micro-batches at every station and a list of all
// events. It was written before and apart from schedule/recurrence.h; tests compare the two.
#pragma once

#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {

// Returns the same as schedule_pipeline(). REQUIRES: as there.
PipelineSchedule reference_schedule(const PipelineLoad& load);

}  // namespace sluice::schedule
