// Objects of buckets as files of this machine.
#pragma once

#include <filesystem>
#include <string>

#include "storage/location.h"

namespace sluice::corpus {

// Writes the object to `path`, whole or not at all, several ranges at once. InputError when it has another
// version than this, or gets one meanwhile.
void copy_to_file(const storage::Location& place, const std::string& version,
                  const std::filesystem::path& path);

}  // namespace sluice::corpus
