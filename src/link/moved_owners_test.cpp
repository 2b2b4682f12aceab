#include "link/moved_owners.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace sluice::link {
namespace {

int owner_of(const model::Bucket& bucket, int ranks, int64_t element) {
  int owner = 0;
  while (OwnerLayout{ranks}.owned(bucket, owner).end <= element) ++owner;
  return owner;
}

// Every element comes once to its new owner, from the rank that holds its former owner's slice.
TEST(MovedOwners, BringEachElementToItsOwnerFromWhereItLies) {
  base::Rng rng(1);
  for (int draw = 0; draw < 500; ++draw) {
    const int before = static_cast<int>(rng.between(1, 9));
    const int after = static_cast<int>(rng.between(1, 9));
    model::Bucket bucket;
    bucket.index = 3;
    bucket.size = rng.between(1, 40);
    std::vector<int> holders;
    for (int owner = 0; owner < before; ++owner)
      holders.push_back(static_cast<int>(rng.between(0, after - 1)));
    std::vector<int> seen(static_cast<size_t>(bucket.size), 0);
    int64_t position = 0;
    for (const Transfer& transfer : moved_owners(bucket, holders, after)) {
      EXPECT_EQ(transfer.bucket, 3);
      EXPECT_EQ(transfer.slice.begin, position) << "in order and without gaps";
      position = transfer.slice.end;
      for (int64_t element = transfer.slice.begin; element < transfer.slice.end; ++element) {
        ++seen[static_cast<size_t>(element)];
        EXPECT_EQ(owner_of(bucket, after, element), transfer.destination);
        const int owner = owner_of(bucket, before, element);
        EXPECT_EQ(transfer.source, holders[static_cast<size_t>(owner)]);
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace sluice::link
