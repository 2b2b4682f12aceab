// What tells the ranks of one run from everybody else who can reach their ports.
#pragma once

#include <cstddef>
#include <string>

namespace sluice::transport {

struct RunKey {
  std::string
      secret;       // shared by the ranks alone; "" when nobody gave one: then strangers can pass for ranks
  std::string run;  // the launcher's name for the run: keeps runs apart that share a secret, or have none
  int world_size = 1;
};

inline constexpr size_t kProofBytes = 32;

// HMAC-SHA256 of `statement` under the run's secret and name (not its world size: who states another one is
// told so): shows that one knows the key without showing the key. Always kProofBytes.
std::string proof_of(const RunKey& key, const std::string& statement);

// Compares in a time that does not depend on the proofs' bytes.
bool same_proof(const std::string& left, const std::string& right);

// `bytes` that nobody can guess.
std::string random_bytes(size_t bytes);

// A secret of 128 bits, as 32 hexadecimal digits.
std::string random_secret();

}  // namespace sluice::transport
