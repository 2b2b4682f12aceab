// Unfinished files and folders. While `path` is being written, its content lies in `path`.part-PID, which the
// writing process locks. When a process is killed its locks vanish, so the next writer of `path` knows which
// parts are abandoned. Locks tell this on network file systems, too, where a process id says nothing. Parts
// of killed processes stay on file systems without locks, and folders also on those that lock only files open
// for writing, such as NFS.
#pragma once

#include <filesystem>

namespace sluice::base {

// The path of this process's part: `path`.part-PID.
std::filesystem::path part_of(const std::filesystem::path& path);

// Locks a new part, open as `descriptor`, until that is closed. False if another process took the part for
// abandoned in the meantime and removed it; the caller then creates it again.
bool claim_part(int descriptor);

// Removes the parts of `path` that no running process holds a lock on.
void remove_abandoned_parts(const std::filesystem::path& path);

}  // namespace sluice::base
