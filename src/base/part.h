// Unfinished files and folders. Until it is whole, what will be `path` stands as `path`.part-PID and is
// locked by the process that writes it. A killed process's locks are gone, which is how the next writer of
// `path` knows which parts nobody will finish: on network file systems too, where a process id says nothing.
// Where a file system has no locks (for folders: where it locks only what is open for writing, as NFS does),
// parts of killed processes stay.
#pragma once

#include <filesystem>

namespace sluice::base {

// This process's part of `path`.
std::filesystem::path part_of(const std::filesystem::path& path);

// Locks a part that was just made and is open as `descriptor`, until that is closed. False when another
// process, in the moment before, took it for abandoned and removed it: then it is to be made again.
bool claim_part(int descriptor);

// Removes the parts of `path` that no process has claimed.
void remove_abandoned_parts(const std::filesystem::path& path);

}  // namespace sluice::base
