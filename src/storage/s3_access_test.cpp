#include "storage/s3_access.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Access : public testing::Test {
 protected:
  Access() {
    fs::create_directories(home_ / ".aws");
    environment_["HOME"] = home_.string();
  }
  ~Access() override { fs::remove_all(home_); }

  void write(const char* name, const char* text) { base::write_file_atomically(home_ / ".aws" / name, text); }

  std::string fault() {
    try {
      s3_access_from(environment_).credentials();
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path home_ = fs::temp_directory_path() / ("sluice-aws-" + std::to_string(::getpid()));
  std::map<std::string, std::string> environment_;
};

TEST_F(Access, ComesFromTheEnvironmentFirst) {
  write("credentials", "[default]\naws_access_key_id = file\naws_secret_access_key = secret\n");
  environment_.insert({{"AWS_ACCESS_KEY_ID", "key"},
                       {"AWS_SECRET_ACCESS_KEY", "hidden"},
                       {"AWS_SESSION_TOKEN", "token"},
                       {"AWS_DEFAULT_REGION", "eu-west-1"},
                       {"AWS_ENDPOINT_URL", "http://localhost:9000/"}});
  const S3Access access = s3_access_from(environment_);
  EXPECT_EQ(access.region, "eu-west-1");
  EXPECT_EQ(access.endpoint, "http://localhost:9000");
  EXPECT_EQ(access.credentials().key_id, "key");
  EXPECT_EQ(access.credentials().secret, "hidden");
  EXPECT_EQ(access.credentials().session_token, "token");
}

TEST_F(Access, ComesFromTheProfileThatIsNamed) {
  write("credentials",
        "# two\n[default]\naws_access_key_id = one\naws_secret_access_key = a=b\n\n"
        "[ other ]\naws_access_key_id=two\naws_secret_access_key=c\n");
  write("config",
        "[default]\nregion = us-west-2\n[profile other]\nregion = eu-north-1\ns3 =\n  region = no\n");
  EXPECT_EQ(s3_access_from(environment_).region, "us-west-2");
  EXPECT_EQ(s3_access_from(environment_).credentials().secret, "a=b");
  environment_["AWS_PROFILE"] = "other";
  EXPECT_EQ(s3_access_from(environment_).region, "eu-north-1");
  EXPECT_EQ(s3_access_from(environment_).credentials().key_id, "two");
}

// Programs that refresh temporary credentials rewrite the file.
TEST_F(Access, CredentialsAreReadWhenTheyAreAskedFor) {
  const S3Access access = s3_access_from(environment_);
  write("credentials", "[default]\naws_access_key_id = late\naws_secret_access_key = x\n");
  EXPECT_EQ(access.credentials().key_id, "late");
}

TEST_F(Access, WithoutCredentialsSaysWhereItLooked) {
  EXPECT_THAT(fault(), HasSubstr((home_ / ".aws/credentials").string()));
  environment_["AWS_ACCESS_KEY_ID"] = "half";
  EXPECT_THAT(fault(), HasSubstr("only the first is set"));
}

TEST_F(Access, RefusesAnEndpointWithoutAScheme) {
  environment_["AWS_ENDPOINT_URL"] = "localhost:9000";
  EXPECT_THAT(fault(), HasSubstr("begin it with https://"));
}

}  // namespace
}  // namespace sluice::storage
