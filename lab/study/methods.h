// Planning methods besides ours, by name: "paper" (published::paper) and "exact" (exact::method).
#pragma once

namespace sluice::study {

// Registers the methods; programs call it at start.
void offer_methods();

}  // namespace sluice::study
