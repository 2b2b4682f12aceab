// What it takes to reach buckets: where, and as whom. From the places where AWS's own programs look.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace sluice::storage {

struct S3Credentials {
  std::string key_id;
  std::string secret;
  std::string session_token;  // of temporary ones
};

struct S3Access {
  std::string endpoint;  // "" is AWS's; else https://host[:port], buckets follow as a path
  std::string region = "us-east-1";
  std::string ca_bundle;  // a file of certificates to trust; "": the system's
  int attempts = 6;       // of each request, the pauses between them doubling from 0.2 s
  // Read when first needed, and again when the server says that they have expired. InputError when there are
  // none, saying where they were looked for.
  std::function<S3Credentials()> credentials;
};

// From an environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else the profile
// AWS_PROFILE of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) or AWS_CONFIG_FILE (~/.aws/config);
// AWS_REGION, AWS_DEFAULT_REGION or the profile's region; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the
// profile's endpoint_url; AWS_CA_BUNDLE; AWS_MAX_ATTEMPTS. InputError for a number or a file that cannot be
// read.
S3Access s3_access_from(const std::map<std::string, std::string>& environment);

}  // namespace sluice::storage
