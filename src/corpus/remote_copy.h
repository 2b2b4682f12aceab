// Copies objects from buckets to files of this machine.
#pragma once

#include <filesystem>
#include <string>

#include "storage/location.h"

namespace sluice::corpus {

// Writes the object to `path`, whole or not at all, fetching several ranges at once. InputError if the
// object's version is not `version`, or changes meanwhile.
void copy_to_file(const storage::Location& place, const std::string& version,
                  const std::filesystem::path& path);

}  // namespace sluice::corpus
