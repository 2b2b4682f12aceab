// What ends the program where nobody catches it: a line for the user and a status instead of a signal.
#pragma once

namespace sluice::cli {

// From now on a failure that nobody catches, on a thread say, is such a line and exit status 1.
void say_what_nobody_catches();

// Ends the program so where the limit of its address space leaves no room for the libraries' own
// initialisers: some of them know no other answer to missing memory than a signal. Before they run.
void require_address_space();

}  // namespace sluice::cli
