// Uncaught failures end the program with a line for the user and an exit status instead of a signal.
#pragma once

namespace sluice::cli {

// Gives uncaught failures on any thread a line on stderr and exit status 1.
void say_what_nobody_catches();

// Ends the program likewise if its address-space limit is too small for the libraries' initialisers. It runs
// before them, since some of them react to missing memory with a signal.
void require_address_space();

}  // namespace sluice::cli
