#include "transport/run_store.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::transport {
namespace {

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

RunStore::RunStore(std::unique_ptr<StoreServer> server, std::unique_ptr<StoreClient> client,
                   std::chrono::milliseconds timeout)
    : Store(timeout), server_(std::move(server)), client_(std::move(client)) {}

c10::intrusive_ptr<c10d::Store> RunStore::clone() {
  return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
}

void RunStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  const std::lock_guard lock(mutex_);
  client_->set(key, text_of(value));
}

std::vector<uint8_t> RunStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                          const std::vector<uint8_t>& desired) {
  const std::lock_guard lock(mutex_);
  return bytes_of(client_->compare_set(key, text_of(expected), text_of(desired)));
}

std::vector<uint8_t> RunStore::get(const std::string& key) {
  wait({key});
  const std::lock_guard lock(mutex_);
  return bytes_of(client_->find(key).value_or(""));
}

int64_t RunStore::add(const std::string& key, int64_t value) {
  const std::lock_guard lock(mutex_);
  return client_->add(key, value);
}

bool RunStore::deleteKey(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return client_->erase(key);
}

bool RunStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return client_->wait(keys, 0);
}

int64_t RunStore::getNumKeys() {
  const std::lock_guard lock(mutex_);
  return client_->size();
}

void RunStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void RunStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const std::lock_guard lock(mutex_);
  if (client_->wait(keys, std::chrono::nanoseconds(timeout).count())) return;
  throw base::RunError(base::text("no rank set '", base::join(keys, "', '"), "' in the store within ",
                                  base::human_duration(std::chrono::nanoseconds(timeout).count())));
}

}  // namespace sluice::transport
