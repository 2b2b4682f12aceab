// The key of a run, which distinguishes its ranks from other processes that can reach their ports.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::transport {

struct RunKey {
  std::string secret;  // known to the ranks only; "" if none was given: strangers can then pass for ranks
  std::string run;     // the launcher's name for the run: separates runs with the same secret or none
  int world_size = 1;
};

inline constexpr size_t kProofBytes = 32;

// HMAC-SHA256 of `statement` under the run's secret and name: proves knowledge of the key. The world size is
// left out, so that a process with another one gets an error that says so. Always kProofBytes.
std::string proof_of(const RunKey& key, const std::string& statement);

// Compares in constant time, whatever the proofs' bytes are.
bool same_proof(const std::string& left, const std::string& right);

// `bytes` unpredictable bytes from the kernel.
std::string random_bytes(size_t bytes);

// A random secret of 128 bits as 32 hexadecimal digits.
std::string random_secret();

}  // namespace sluice::transport
