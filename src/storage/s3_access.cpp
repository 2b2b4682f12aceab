#include "storage/s3_access.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace sluice::storage {

namespace fs = std::filesystem;
using base::InputError;
using base::text;

namespace {

using Variables = std::map<std::string, std::string>;

// The value of the first of these variables that is set and not empty; "" if there is none.
std::string first_of(const Variables& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = environment.find(name);
    if (found != environment.end() && !found->second.empty()) return found->second;
  }
  return "";
}

// The keys of one section of an INI file in AWS's format; empty without the file or the section. Indented
// lines belong to nested sections and are skipped: none of them is needed here.
Variables ini_section(const fs::path& path, const std::string& section) {
  Variables values;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return values;
  bool inside = false;
  for (const std::string& line : base::split(base::read_file(path), '\n')) {
    const std::string_view content = base::trim(line);
    if (content.empty() || content.front() == '#' || content.front() == ';' || line.front() == ' ') continue;
    if (content.front() == '[') {
      inside = content.back() == ']' && base::trim(content.substr(1, content.size() - 2)) == section;
      continue;
    }
    const size_t equals = content.find('=');
    if (!inside || equals == std::string_view::npos) continue;
    values[std::string(base::trim(content.substr(0, equals)))] = base::trim(content.substr(equals + 1));
  }
  return values;
}

// The places of a user's settings.
struct Profile {
  std::string name;
  fs::path credentials_file;
  fs::path config_file;

  Variables config() const {
    return ini_section(config_file, name == "default" ? name : text("profile ", name));
  }
};

Profile profile_of(const Variables& environment) {
  const std::string home = first_of(environment, {"HOME"});
  const auto file = [&](const char* variable, const char* name) {
    const std::string chosen = first_of(environment, {variable});
    return chosen.empty() ? fs::path(home) / ".aws" / name : fs::path(chosen);
  };
  const std::string name = first_of(environment, {"AWS_PROFILE"});
  return {.name = name.empty() ? "default" : name,
          .credentials_file = file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
          .config_file = file("AWS_CONFIG_FILE", "config")};
}

S3Credentials credentials_from(const Variables& environment, const Profile& profile) {
  const std::string key_id = first_of(environment, {"AWS_ACCESS_KEY_ID"});
  const std::string secret = first_of(environment, {"AWS_SECRET_ACCESS_KEY"});
  if (key_id.empty() != secret.empty()) {
    throw InputError(text("of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only ",
                          key_id.empty() ? "the second" : "the first", " is set: set both"));
  }
  if (!key_id.empty()) return {key_id, secret, first_of(environment, {"AWS_SESSION_TOKEN"})};
  for (const Variables& section : {ini_section(profile.credentials_file, profile.name), profile.config()}) {
    S3Credentials found{first_of(section, {"aws_access_key_id"}),
                        first_of(section, {"aws_secret_access_key"}),
                        first_of(section, {"aws_session_token"})};
    if (!found.key_id.empty() && !found.secret.empty()) return found;
  }
  throw InputError(text(
      "no credentials for s3:// in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor in profile '",
      profile.name, "' of ", profile.credentials_file.string(), " or ", profile.config_file.string(),
      ": set them; `aws configure export-credentials --format env` ", "prints those of a role or a login"));
}

}  // namespace

S3Access s3_access_from(const Variables& environment) {
  const Profile profile = profile_of(environment);
  const Variables config = profile.config();
  S3Access access;
  access.endpoint = first_of(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (access.endpoint.empty()) access.endpoint = first_of(config, {"endpoint_url"});
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  if (!access.endpoint.empty() && !access.endpoint.starts_with("http://") &&
      !access.endpoint.starts_with("https://")) {
    throw InputError(text("AWS_ENDPOINT_URL is '", access.endpoint, "': begin it with https:// or http://"));
  }
  std::string region = first_of(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (region.empty()) region = first_of(config, {"region"});
  if (!region.empty()) access.region = region;
  access.ca_bundle = first_of(environment, {"AWS_CA_BUNDLE"});
  if (const std::string attempts = first_of(environment, {"AWS_MAX_ATTEMPTS"}); !attempts.empty()) {
    const std::optional<int64_t> number = base::parse_integer(attempts);
    if (!number || *number < 1 || *number > 100) {
      throw InputError(text("AWS_MAX_ATTEMPTS is '", attempts, "': set a number from 1 to 100"));
    }
    access.attempts = static_cast<int>(*number);
  }
  access.credentials = [environment, profile] { return credentials_from(environment, profile); };
  return access;
}

}  // namespace sluice::storage
