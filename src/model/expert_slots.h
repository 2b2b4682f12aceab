// Experts of one layer on the lanes that divide them. All lanes have equally many expert slots. Slots are
// numbered lane by lane, and each holds one expert. An expert may have slots on several lanes; its visits are
// divided between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::model {

// Visits of each slot, balanced so that the busiest lane has few. Computed in integers, so that all ranks get
// the same result. `visits`: by expert. `seats`: the expert of each slot.
std::vector<int64_t> assignments_by_slot(std::span<const int64_t> visits, std::span<const int> seats,
                                         int lanes);

// Visits of the busiest lane over the mean lane's, divided as above; 1 if there are no visits.
double expert_load_imbalance(std::span<const int64_t> visits, std::span<const int> seats, int lanes);

// Slots for `experts` experts in their order, equally many on each lane.
std::vector<int> even_expert_slots(int64_t experts);

}  // namespace sluice::model
