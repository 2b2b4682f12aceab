// base::hash_bytes of data that arrives in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::base {

class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash& operator=(StreamHash&&) noexcept;

  void add(const void* data, size_t size);
  // hash_bytes of all data added so far.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::base
