// A bucket of Amazon's S3 or of a server that speaks its protocol, as a store. Objects appear whole or not at
// all; large ones go in parts, several at once. Where the build found no libcurl there are none.
#pragma once

#include <memory>
#include <string>

#include "storage/s3_access.h"
#include "storage/store.h"

namespace sluice::storage {

// InputError, quoting `text`, unless it may be a bucket's name.
void require_bucket_name(const std::string& bucket, const std::string& text);

// What speaks to buckets, "libcurl 7.88.1"; "" where the build found nothing.
std::string s3_library();

// Connects at the first request. Nothing can be renamed there.
std::shared_ptr<Store> open_bucket(const std::string& bucket, const S3Access& access);

}  // namespace sluice::storage
