# Sluice with everything that it needs to plan and to train on CPUs. `tools/bare_machine dockerfile ROOT` executes these
# steps in a chroot, where there is no Docker.
#
#   docker build -t sluice . && docker run --rm -it -v "$PWD/runs:/sluice/runs" sluice doctor
FROM debian:12
COPY . /sluice
WORKDIR /sluice
RUN tools/bootstrap
RUN make build
RUN apt-get clean
ENTRYPOINT ["/sluice/build/sluice"]
CMD ["doctor"]
