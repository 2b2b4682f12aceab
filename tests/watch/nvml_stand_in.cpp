// A library with NVML's names and one GPU, for tests of src/watch/gpu_health.h where there is no driver.
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  static int gpu;
  *device = &gpu;
  return std::strcmp(bus_id, "0000:3b:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) { return *mhz = 1410, clock == 1 ? 0 : 2; }
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 312'400, 0; }
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return *celsius = 71, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  return *reasons = 0x20, 0;
}
int nvmlDeviceGetTotalEccErrors(void*, int, int, unsigned long long*) { return 3; }  // not supported
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) { return *lanes = 8, 0; }
int nvmlDeviceGetNvLinkErrorCounter(void*, unsigned link, int counter, unsigned long long* errors) {
  *errors = counter == 0 ? 3 : 5;
  return link < 2 ? 0 : 2;
}
}
