#include "storage/location.h"

#include "base/error.h"
#include "base/text.h"
#include "storage/directory.h"
#include "storage/s3_store.h"

namespace sluice::storage {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kS3 = "s3://";

}  // namespace

Location::Location(const fs::path& path) : path_(path) {}

Location::Location(std::shared_ptr<Store> store, std::string name)
    : store_(std::move(store)), name_(std::move(name)) {}

// The file system as a store has no state, and its names are plain paths.
Store& Location::store() const {
  static FileSystem file_system;
  return store_ ? *store_ : file_system;
}

std::string Location::filename() const {
  return store_ ? fs::path(name_).filename().string() : path_.filename().string();
}

Location Location::parent() const {
  return store_ ? Location(store_, fs::path(name_).parent_path().string()) : Location(path_.parent_path());
}

Location Location::operator/(std::string_view name) const {
  return store_ ? Location(store_, (fs::path(name_) / name).string()) : Location(path_ / name);
}

Location Location::with_suffix(std::string_view suffix) const {
  const std::string ending(suffix);
  return store_ ? Location(store_, name_ + ending) : Location(fs::path(path_.string() + ending));
}

std::string Location::string() const { return store_ ? store_->text(name_) : path_.string(); }

std::string Location::key() const { return store_ ? name_ : path_.string(); }

std::vector<Entry> Location::entries() const { return store().entries(key()); }
std::optional<FileStatus> Location::status() const { return store().status(key()); }
std::unique_ptr<Source> Location::open() const { return store().open(key()); }
std::unique_ptr<Sink> Location::create(int64_t bytes) const { return store().create(key(), bytes); }
void Location::make_directory() const { store().make_directory(key()); }
void Location::remove() const { store().remove(key()); }
void Location::remove_tree() const { store().remove_tree(key()); }
bool Location::rename(const Location& to) const { return store().rename(key(), to.key()); }
int64_t Location::moved_bytes() const { return store().moved_bytes(); }

std::string Location::read() const {
  const std::unique_ptr<Source> source = open();
  source->fetch({0, source->size()});
  return {reinterpret_cast<const char*>(source->data()), static_cast<size_t>(source->size())};
}

void Location::write(std::string_view bytes) const {
  const std::unique_ptr<Sink> sink = create(static_cast<int64_t>(bytes.size()));
  sink->write(bytes.data(), bytes.size());
  sink->finish();
}

bool is_s3(std::string_view text) { return text.starts_with(kS3); }

Location locate(const std::string& text, const S3Access& access) {
  if (!text.starts_with("s3:")) return Location(fs::path(text));
  if (!is_s3(text)) {
    throw base::InputError(
        base::text(text, " is no bucket: give s3://BUCKET/NAME, or ./", text, " for the directory"));
  }
  const std::string rest = text.substr(kS3.size());
  const size_t slash = rest.find('/');
  const std::string bucket = rest.substr(0, slash);
  std::string name = slash == std::string::npos ? "" : rest.substr(slash + 1);
  while (name.ends_with('/')) name.pop_back();
  require_bucket_name(bucket, text);
  if (name.starts_with('/') || name.find("//") != std::string::npos) {
    throw base::InputError(base::text(text, " has an empty name between two slashes: leave one out"));
  }
  return {open_bucket(bucket, access), name};
}

bool same_place(const Location& a, const Location& b) {
  if (a.is_path() != b.is_path()) return false;
  if (!a.is_path()) return a.string() == b.string();
  std::error_code ignored;
  const fs::path one = fs::absolute(a.path()).lexically_normal();
  const fs::path other = fs::absolute(b.path()).lexically_normal();
  return one == other || fs::equivalent(one, other, ignored);
}

}  // namespace sluice::storage
