// The device itself: each kind of fault that needs no run of training.
#include "device.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::stand_in {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::UnorderedElementsAre;

class StandInDevice : public testing::Test {
 protected:
  void SetUp() override { checker(0).begin_run(); }
  // Kinds of faults since the test began.
  static std::map<std::string, int64_t> faults() { return checker(0).end_run().faults; }
  static c10::Stream new_stream() { return streams().getStreamFromGlobalPool(device(0)); }
  static c10::Stream default_stream() { return streams().getDefaultStream(device(0)); }
  static void order(const c10::Stream& first, const c10::Stream& second) {
    c10::Event event(c10::kPrivateUse1);
    event.record(first);
    event.block(second);
  }
  static at::Tensor ones() { return at::ones({8}, at::dtype(at::kDouble).device(device(0))); }
  static at::Tensor pinned() { return at::ones({8}, at::dtype(at::kDouble).pinned_memory(true)); }

 private:
  static c10::impl::VirtualGuardImpl streams() { return c10::impl::VirtualGuardImpl(c10::kPrivateUse1); }
};

TEST_F(StandInDevice, ComputesAsTheHost) {
  const at::Tensor x = ones().mul_(3), y = at::cat({x, x.narrow(0, 2, 3)}).view({11}).cumsum(0);
  EXPECT_EQ(y.cpu().sum().item<double>(), 3 * 66);
  EXPECT_THAT(faults(), IsEmpty());
}

TEST_F(StandInDevice, WorkOfTwoStreamsMustBeOrdered) {
  const at::Tensor x = ones();
  const c10::Stream other = new_stream();
  {
    const c10::StreamGuard guard(other);
    x.add(1);
  }
  EXPECT_THAT(faults(), UnorderedElementsAre(Key(HasSubstr("read of aten::add"))));
  order(default_stream(), other);
  {
    const c10::StreamGuard guard(other);
    x.add_(1);
  }
  EXPECT_THAT(faults(), IsEmpty());
  x.add(1);
  EXPECT_THAT(faults(), UnorderedElementsAre(Key(HasSubstr("races with the write of aten::add"))));
}

TEST_F(StandInDevice, PartsSideBySideDoNotTouch) {
  const at::Tensor x = ones().view({2, 4});
  const c10::Stream other = new_stream();
  order(default_stream(), other);
  {
    const c10::StreamGuard guard(other);
    x.narrow(1, 0, 2).add_(1);
  }
  x.narrow(1, 2, 2).add_(1);
  EXPECT_THAT(faults(), IsEmpty());
  x.narrow(1, 1, 2).add_(1);
  EXPECT_FALSE(faults().empty());
}

TEST_F(StandInDevice, AllocatorMustKnowTheStreamsOfMemoryThatIsFreed) {
  for (const bool told : {false, true}) {
    at::Tensor x = ones();
    const c10::Stream other = new_stream();
    order(default_stream(), other);
    {
      const c10::StreamGuard guard(other);
      x.add(1);
      if (told) x.record_stream(other);
    }
    x.reset();
    EXPECT_EQ(faults().empty(), told);
  }
}

TEST_F(StandInDevice, OperandsAreOfOneDevice) {
  const at::Tensor x = ones();
  EXPECT_THROW(x.add(at::ones({8}, at::dtype(at::kDouble).device(device(1)))), c10::Error);
  x.index_select(0, at::zeros({2}, at::kLong));
  EXPECT_THAT(faults(), UnorderedElementsAre(Key(HasSubstr("has an operand on cpu"))));
  x.add(at::ones({}, at::kDouble));
  EXPECT_THAT(faults(), IsEmpty()) << "a number may lie on the host";
}

TEST_F(StandInDevice, PinnedMemoryIsNotWrittenBeforeItsCopyIsDone) {
  const at::Tensor host = pinned(), x = host.to(device(0), /*non_blocking=*/true);
  host.fill_(2);
  default_stream().synchronize();
  EXPECT_THAT(faults(), UnorderedElementsAre(Key(HasSubstr("the host wrote"))));
  const at::Tensor y = host.to(device(0), /*non_blocking=*/true);
  default_stream().synchronize();
  host.fill_(3);
  EXPECT_THAT(faults(), IsEmpty());
}

TEST_F(StandInDevice, HostFindsNothingBeforeItHasWaited) {
  const at::Tensor host = pinned();
  host.copy_(ones(), /*non_blocking=*/true);
  EXPECT_TRUE(host.isnan().all().item<bool>());
  default_stream().synchronize();
  EXPECT_EQ(host.sum().item<double>(), 8);
  const at::Tensor pageable = at::zeros({8}, at::kDouble);
  pageable.copy_(ones(), /*non_blocking=*/true);
  EXPECT_EQ(pageable.sum().item<double>(), 8) << "the host waits for copies to memory that is not pinned";
}

}  // namespace
}  // namespace sluice::stand_in
