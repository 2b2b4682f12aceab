#ifdef SLUICE_S3

#include "storage/s3_client.h"

#include <curl/curl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"

namespace sluice::storage {

using base::InputError;
using base::RunError;
using base::text;

namespace {

constexpr std::chrono::milliseconds kFirstPause{200};
constexpr std::chrono::milliseconds kLongestPause{5'000};
constexpr long kConnectTimeoutS = 10;
constexpr long kSilenceS = 30;  // an attempt fails after so long without a byte

// Encodes all bytes except unreserved characters and those in `also_plain`, as AWS's signature requires.
std::string url_encoded(std::string_view value, std::string_view also_plain = "") {
  constexpr std::string_view kPlain = "-._~";
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte) != 0) || kPlain.find(c) != std::string_view::npos ||
                       also_plain.find(c) != std::string_view::npos;
    if (plain) {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

std::string sha256_text(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const int done = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  SLUICE_ASSERT(done == 1, "libcrypto has no SHA-256");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : std::span(digest).first(size))
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

bool may_pass(CURLcode code) {
  constexpr CURLcode kPassing[] = {
      CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_OPERATION_TIMEDOUT, CURLE_SEND_ERROR,
      CURLE_RECV_ERROR,           CURLE_GOT_NOTHING,     CURLE_PARTIAL_FILE,       CURLE_SSL_CONNECT_ERROR};
  return std::ranges::find(kPassing, code) != std::end(kPassing);
}

bool may_pass(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// Sleeps between half of the pause and all of it, so that ranks that fail together spread out.
void pause_before(int attempt) {
  const auto longest = std::min(kLongestPause, kFirstPause * (1 << std::min(attempt, 10)));
  const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const uint64_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
  std::this_thread::sleep_for(longest * (0.5 + 0.5 * base::random_uniform(now, thread, 0)));
}

}  // namespace

// Not in the unnamed namespace, because a named type has a member of this type.
struct HeaderList {
  curl_slist* list = nullptr;
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  ~HeaderList() { curl_slist_free_all(list); }
  void add(const std::string& line) { list = curl_slist_append(list, line.c_str()); }
};

struct S3Client::Attempt {
  CURLcode code = CURLE_OK;
  S3Response response;
  std::array<char, CURL_ERROR_SIZE> message{};
  HeaderList headers;
  std::byte* into = nullptr;
  int64_t room = 0;  // size of the range
  int64_t received = 0;
  std::atomic<int64_t>* moved = nullptr;

  bool succeeded() const { return code == CURLE_OK && response.status / 100 == 2; }
  // S3's error code.
  std::string reason() const { return xml_text(response.body, "Code"); }

  static size_t on_header(char* data, size_t, size_t size, void* self) {
    auto& response = static_cast<Attempt*>(self)->response;
    const std::string_view line(data, size);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = base::trim(line.substr(colon + 1));
    return size;
  }

  // Bytes of a range go to `into`, but only if the response is a range and not an error's text.
  static size_t on_body(char* data, size_t, size_t size, void* self) {
    constexpr size_t kLongestBody = size_t{64} << 20;
    auto& attempt = *static_cast<Attempt*>(self);
    *attempt.moved += static_cast<int64_t>(size);
    const bool whole = attempt.into == nullptr || attempt.response.headers.contains("content-range") == false;
    if (whole) {
      if (attempt.response.body.size() + size > kLongestBody) return 0;
      attempt.response.body.append(data, size);
      return size;
    }
    if (attempt.received + static_cast<int64_t>(size) > attempt.room) return 0;
    std::memcpy(attempt.into + attempt.received, data, size);
    attempt.received += static_cast<int64_t>(size);
    return size;
  }
};

S3Client::S3Client(std::string bucket, S3Access access)
    : bucket_(std::move(bucket)), access_(std::move(access)) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) throw RunError(text("libcurl cannot start: ", curl_easy_strerror(started)));
}

S3Client::~S3Client() {
  for (CURL* handle : idle_) curl_easy_cleanup(handle);
}

CURL* S3Client::take_handle() {
  const std::lock_guard lock(mutex_);
  if (!idle_.empty()) {
    CURL* handle = idle_.back();
    idle_.pop_back();
    return handle;
  }
  CURL* handle = curl_easy_init();
  if (handle == nullptr) throw RunError("libcurl cannot make a handle: out of memory");
  return handle;
}

void S3Client::give_handle(CURL* handle) {
  curl_easy_reset(handle);  // keeps its connections open
  const std::lock_guard lock(mutex_);
  idle_.push_back(handle);
}

S3Credentials S3Client::credentials() {
  const std::lock_guard lock(mutex_);
  if (!credentials_) {
    SLUICE_ASSERT(access_.credentials, "a bucket is used without credentials");
    credentials_ = access_.credentials();
  }
  return *credentials_;
}

void S3Client::forget_credentials() {
  const std::lock_guard lock(mutex_);
  credentials_.reset();
}

// AWS requires the bucket in the host name where certificates allow it; other servers take it in the path.
std::string S3Client::url_of(const S3Request& request) const {
  const bool in_path = !access_.endpoint.empty() || bucket_.find('.') != std::string::npos;
  std::string url = access_.endpoint;
  if (url.empty())
    url = text("https://", in_path ? "" : bucket_ + ".", "s3.", access_.region, ".amazonaws.com");
  url += in_path ? "/" + bucket_ : "";
  url += "/" + url_encoded(request.key, "/");
  if (request.key.empty() && in_path) url.pop_back();
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    url += separator + url_encoded(name) + "=" + url_encoded(value);
    separator = '&';
  }
  return url;
}

void S3Client::prepare(CURL* handle, const S3Request& request, Attempt& attempt) {
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle, option, value); };
  const S3Credentials as = credentials();
  attempt.moved = &moved_bytes_;
  attempt.into = request.into;
  attempt.headers.add("x-amz-content-sha256: " + sha256_text(request.body));
  if (!as.session_token.empty()) attempt.headers.add("x-amz-security-token: " + as.session_token);
  if (!request.body.empty()) attempt.headers.add("content-type: application/octet-stream");
  if (!request.version.empty()) attempt.headers.add("if-match: " + request.version);
  set(CURLOPT_URL, url_of(request).c_str());
  set(CURLOPT_AWS_SIGV4, text("aws:amz:", access_.region, ":s3").c_str());
  set(CURLOPT_USERPWD, text(as.key_id, ":", as.secret).c_str());
  set(CURLOPT_HTTPHEADER, attempt.headers.list);
  set(CURLOPT_ERRORBUFFER, attempt.message.data());
  set(CURLOPT_HEADERFUNCTION, &Attempt::on_header);
  set(CURLOPT_HEADERDATA, &attempt);
  set(CURLOPT_WRITEFUNCTION, &Attempt::on_body);
  set(CURLOPT_WRITEDATA, &attempt);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_CONNECTTIMEOUT, kConnectTimeoutS);
  set(CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);  // suppressing "Expect" would sign it as an empty header
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kSilenceS);
  if (!access_.ca_bundle.empty()) set(CURLOPT_CAINFO, access_.ca_bundle.c_str());
  const std::string_view method = request.method;
  if (method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (method == "PUT" || method == "POST") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
  }
  if (method != "GET" && method != "HEAD") set(CURLOPT_CUSTOMREQUEST, request.method);
  if (request.range) {
    attempt.room = request.range->size();
    set(CURLOPT_RANGE, text(request.range->begin, "-", request.range->end - 1).c_str());
  }
}

void S3Client::attempt(const S3Request& request, Attempt& attempt) {
  CURL* handle = take_handle();
  prepare(handle, request, attempt);
  attempt.code = curl_easy_perform(handle);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  attempt.response.status = static_cast<int>(status);
  give_handle(handle);
  // A request may fail after its response has begun with status 200.
  const bool posted = std::string_view(request.method) == "POST";
  if (posted && attempt.succeeded() && !attempt.reason().empty()) attempt.response.status = 500;
  if (!attempt.succeeded()) return;
  moved_bytes_ += static_cast<int64_t>(request.body.size());
  if (request.into != nullptr && attempt.received != attempt.room) attempt.code = CURLE_PARTIAL_FILE;
}

S3Response S3Client::perform(const S3Request& request) {
  constexpr std::string_view kExpired[] = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"};
  for (int number = 1;; ++number) {
    Attempt attempt;
    this->attempt(request, attempt);
    if (attempt.succeeded()) return std::move(attempt.response);
    const bool missing = attempt.response.status == 404 && !request.key.empty() && request.body.empty();
    const std::string reason = attempt.reason();
    if (missing && reason != "NoSuchBucket" && reason != "NoSuchUpload") return std::move(attempt.response);
    if (attempt.response.status == 412 && !request.version.empty()) return std::move(attempt.response);
    const bool expired = std::ranges::find(kExpired, reason) != std::end(kExpired);
    if (expired) forget_credentials();
    const bool passing = attempt.code != CURLE_OK
                             ? may_pass(attempt.code)
                             : may_pass(attempt.response.status) || reason == "RequestTimeout";
    if (number >= access_.attempts || !(passing || expired)) refuse(request, attempt, number);
    pause_before(number);
  }
}

void S3Client::refuse(const S3Request& request, const Attempt& attempt, int attempts) const {
  const std::string what =
      text("s3://", bucket_, request.key.empty() ? "" : "/", request.key, ": ", request.method, " ");
  if (attempt.code != CURLE_OK) {
    const std::string detail(attempt.message.data());
    throw RunError(text(what, "failed after ", base::human_count(attempts, "attempt", "attempts"), ": ",
                        detail.empty() ? curl_easy_strerror(attempt.code) : detail,
                        ": check AWS_ENDPOINT_URL and the network"));
  }
  const int status = attempt.response.status;
  const std::string reason = attempt.reason();
  const std::string message = xml_text(attempt.response.body, "Message");
  const std::string answer = text(what, "was answered ", status, reason.empty() ? "" : " ", reason,
                                  message.empty() ? "" : ", ", message);
  const auto region = attempt.response.headers.find("x-amz-bucket-region");
  if (region != attempt.response.headers.end() && region->second != access_.region) {
    throw InputError(text(answer, ": the bucket is in region ", region->second, ": set AWS_REGION to it"));
  }
  if (reason == "RequestTimeTooSkewed") throw RunError(text(answer, ": set this machine's clock"));
  if (reason == "NoSuchBucket") throw InputError(text(answer, ": make the bucket, or name another"));
  if (status == 401 || status == 403) {
    throw InputError(text(answer,
                          ": check the credentials, and that they may list the bucket and read, write and ",
                          "delete its objects"));
  }
  if (status / 100 == 4 || status / 100 == 3) throw InputError(text(answer, ": check bucket and AWS_REGION"));
  throw RunError(text(answer, ", ", base::human_count(attempts, "attempt", "attempts"), ": try again later"));
}

}  // namespace sluice::storage

#endif
