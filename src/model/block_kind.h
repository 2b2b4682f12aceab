// A block: parts one behind the other, each adding to the rows that pass. Its parts come from a registry by
// name.
#pragma once

#include <memory>

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

class BlockKind final : public Kind {
 public:
  static constexpr std::string_view kName = "block";

  // REQUIRES: the registry knows the parts. `rotates`: positions turn queries and keys.
  BlockKind(const Shape& shape, const std::vector<std::string_view>& parts, bool rotates);

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  TokenBytes bytes(int tp, int64_t element_bytes) const override;
  const std::vector<std::unique_ptr<const Part>>& parts() const { return parts_; }
  bool rotates() const { return rotates_; }

 private:
  std::vector<std::unique_ptr<const Part>> parts_;
  bool rotates_;
};

}  // namespace sluice::model
