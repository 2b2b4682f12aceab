// Requests to one bucket: signed by libcurl (AWS signature version 4), sent again with growing pauses while
// the server or the network cannot do them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/interval.h"
#include "storage/s3_access.h"

using CURL = void;

namespace sluice::storage {

struct S3Request {
  const char* method = "GET";                              // GET, HEAD, PUT, POST or DELETE
  std::string key;                                         // of the object; "" is the bucket
  std::vector<std::pair<std::string, std::string>> query;  // sorted by name, not encoded
  std::span<const std::byte> body;
  std::optional<base::Interval> range;  // of the object's bytes
  std::byte* into = nullptr;            // where the range's bytes go instead of S3Response::body
  std::string version;                  // its entity tag, without which it is not wanted; empty: any
};

struct S3Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class S3Client {
 public:
  S3Client(std::string bucket, S3Access access);
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  const std::string& bucket() const { return bucket_; }

  // The answer, whose status is 2xx or, of GET, HEAD and DELETE, 404 for an object; or 412 where that has
  // another version. InputError when the
  // server refuses the credentials, the bucket or its region; RunError when it cannot be reached, or fails,
  // as often as S3Access::attempts allows. Any thread.
  S3Response perform(const S3Request& request);

  // Bytes of bodies that have come or gone so far.
  int64_t moved_bytes() const { return moved_bytes_; }

 private:
  struct Attempt;

  void attempt(const S3Request& request, Attempt& attempt);
  void prepare(CURL* handle, const S3Request& request, Attempt& attempt);
  S3Credentials credentials();
  void forget_credentials();
  std::string url_of(const S3Request& request) const;
  [[noreturn]] void refuse(const S3Request& request, const Attempt& attempt, int attempts) const;
  CURL* take_handle();
  void give_handle(CURL* handle);

  const std::string bucket_;
  const S3Access access_;
  std::atomic<int64_t> moved_bytes_ = 0;
  std::mutex mutex_;  // guards what follows
  std::optional<S3Credentials> credentials_;
  std::vector<CURL*> idle_;  // with their connections
};

// What stands between <tag> and </tag> in each element of this name, as it is written; elements do not nest.
std::vector<std::string> xml_elements(const std::string& xml, const std::string& tag);
// The text of the first such element, entities resolved; "" when there is none.
std::string xml_text(const std::string& xml, const std::string& tag);
// Text as it may stand in XML.
std::string xml_escaped(const std::string& text);

}  // namespace sluice::storage
