// Methods beside ours, by name: "paper" (published::paper) and "exact" (exact::method).
#pragma once

namespace sluice::study {

// Whoever starts a program calls it first.
void offer_methods();

}  // namespace sluice::study
