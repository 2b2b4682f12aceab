#include "transport/run_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "base/error.h"
#include "base/hash.h"

namespace sluice::transport {

std::string proof_of(const RunKey& key, const std::string& statement) {
  const std::string stated = base::CanonicalBytes().add(key.run).add(statement).bytes();
  unsigned char proof[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(stated.data());
  const void* made = HMAC(EVP_sha256(), key.secret.data(), static_cast<int>(key.secret.size()), data,
                          stated.size(), proof, &bytes);
  SLUICE_ASSERT(made != nullptr && bytes == kProofBytes, "libcrypto made no HMAC-SHA256");
  return {reinterpret_cast<char*>(proof), bytes};
}

bool same_proof(const std::string& left, const std::string& right) {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string random_bytes(size_t bytes) {
  std::string random(bytes, '\0');
  ssize_t got = -1;  // getrandom returns up to 256 bytes whole
  do {
    got = getrandom(random.data(), bytes, 0);
  } while (got < 0 && errno == EINTR);
  SLUICE_ASSERT(got == static_cast<ssize_t>(bytes), "the kernel gave no random bytes");
  return random;
}

std::string random_secret() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : random_bytes(16)) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace sluice::transport
