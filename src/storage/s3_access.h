// Settings for reaching buckets: endpoint and credentials, read from the same places as by AWS's programs.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace sluice::storage {

struct S3Credentials {
  std::string key_id;
  std::string secret;
  std::string session_token;  // for temporary credentials
};

struct S3Access {
  std::string endpoint;  // "": AWS; else https://host[:port], followed by the bucket as a path
  std::string region = "us-east-1";
  std::string ca_bundle;  // a file of trusted certificates; "": the system's
  int attempts = 6;       // per request; pauses between them double from 0.2 s
  // Called at the first use, and again after the server reports expired credentials. InputError with the
  // places searched if there are none.
  std::function<S3Credentials()> credentials;
};

// Reads an environment. Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else
// profile AWS_PROFILE in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) or AWS_CONFIG_FILE (~/.aws/config).
// Region: AWS_REGION, AWS_DEFAULT_REGION or the profile's. Endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or
// the profile's endpoint_url. Also AWS_CA_BUNDLE and AWS_MAX_ATTEMPTS. InputError for a number or a file that
// cannot be read.
S3Access s3_access_from(const std::map<std::string, std::string>& environment);

}  // namespace sluice::storage
