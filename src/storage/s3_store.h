// A bucket of Amazon S3, or of a server with its protocol, as a store. Objects appear whole or not at all;
// large ones are uploaded in several parts at once. Needs libcurl at build time.
#pragma once

#include <memory>
#include <string>

#include "storage/s3_access.h"
#include "storage/store.h"

namespace sluice::storage {

// InputError that quotes `text` unless `bucket` may be a bucket's name.
void require_bucket_name(const std::string& bucket, const std::string& text);

// The library for buckets, "libcurl 7.88.1"; "" if the program was built without it.
std::string s3_library();

// Connects at the first request. Nothing can be renamed in a bucket.
std::shared_ptr<Store> open_bucket(const std::string& bucket, const S3Access& access);

}  // namespace sluice::storage
