# Sluice with everything that it needs to plan and to train on CPUs. `tools/bare_machine dockerfile ROOT` executes these
# steps in a chroot, where there is no Docker.
#
#   docker build -t sluice . && docker run --rm -it -v "$PWD/runs:/sluice/runs" sluice doctor
#
# GPU=1 adds CUDA's compiler and libraries, and builds for GPUs:
#
#   docker build --build-arg GPU=1 -t sluice . && docker run --rm -it --gpus all --shm-size 8g sluice doctor
FROM debian:12
ARG GPU=
COPY . /sluice
WORKDIR /sluice
RUN tools/bootstrap ${GPU:+--gpu}
RUN make build
RUN apt-get clean
ENTRYPOINT ["/sluice/build/sluice"]
CMD ["doctor"]
