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

  BlockKind(const Shape& shape, const BlockType& type);

  std::string_view name() const override { return kName; }
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  TokenBytes bytes(const Cut& cut, int64_t element_bytes) const override;
  CacheBytes cache(const Cut& cut, int64_t element_bytes) const override;
  const std::vector<std::unique_ptr<const Part>>& parts() const { return parts_; }
  const BlockType& type() const { return type_; }
  // As the block is of it: where its norms stand may differ from other blocks'.
  const Shape& shape() const { return shape_; }

 private:
  Shape shape_;
  std::vector<std::unique_ptr<const Part>> parts_;
  BlockType type_;
};

}  // namespace sluice::model
