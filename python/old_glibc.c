// What this machine's C++ runtime asks for and an old glibc lacks (cmake/OldGlibc.cmake).

// Whether the process has a single thread, which spares atomics: 0 is always right.
char __libc_single_threaded = 0;
