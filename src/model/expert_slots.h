// Experts of one layer on the lanes that divide them. A lane has as many seats as every other; seats are
// numbered lane by lane, and each has an expert. An expert may have seats on several lanes: its visits are
// dealt to them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::model {

// Of each seat how many visits it takes of its expert's, so that the busiest lane has few. The same
// everywhere, for it is computed in integers. `visits`: by expert. `seats`: their experts.
std::vector<int64_t> assignments_by_slot(std::span<const int64_t> visits, std::span<const int> seats,
                                         int lanes);

// Visits of the busiest lane over those of the mean one, so dealt; 1 where there are none.
double expert_load_imbalance(std::span<const int64_t> visits, std::span<const int> seats, int lanes);

// Seats for `experts` experts in their order, as many on each lane.
std::vector<int> even_expert_slots(int64_t experts);

}  // namespace sluice::model
