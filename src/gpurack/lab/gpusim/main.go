// gpusim is a simulated GPU device plugin: it speaks kubelet's real device plugin protocol for devices that
// do not exist. Every name it gives says so. It registers again whenever kubelet makes its socket anew.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	v1.UnimplementedDevicePluginServer
	devices []*v1.Device
	done    <-chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1.Empty) (*v1.DevicePluginOptions, error) {
	return &v1.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *v1.Empty, stream v1.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&v1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *v1.AllocateRequest) (*v1.AllocateResponse, error) {
	response := &v1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := strings.Join(container.DevicesIds, ",")
		log.Printf("simulated devices given: %s", ids)
		response.ContainerResponses = append(response.ContainerResponses,
			&v1.ContainerAllocateResponse{Envs: map[string]string{"GPURACK_SIMULATED_GPUS": ids}})
	}
	return response, nil
}

// devices reads "0,0,1,1": the NUMA node of each device, or "-" for a device without a hint.
func devices(numa string) ([]*v1.Device, error) {
	var found []*v1.Device
	for index, text := range strings.Split(numa, ",") {
		device := &v1.Device{ID: fmt.Sprintf("GPU-simulated-%d", index), Health: v1.Healthy}
		if text != "-" {
			node, err := strconv.ParseInt(text, 10, 64)
			if err != nil || node < 0 {
				return nil, fmt.Errorf("-numa: %q is not a NUMA node", text)
			}
			device.Topology = &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: node}}}
		}
		found = append(found, device)
	}
	return found, nil
}

func register(ctx context.Context, kubelet, endpoint, resource string) error {
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = v1.NewRegistrationClient(connection).Register(ctx,
		&v1.RegisterRequest{Version: v1.Version, Endpoint: endpoint, ResourceName: resource})
	return err
}

// same tells whether the socket that was seen is still the one in place; inode numbers alone are reused.
func same(path string, seen os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, seen) && now.ModTime().Equal(seen.ModTime())
}

// serve answers kubelet until ctx ends or either socket is another one; then the caller starts again.
func serve(ctx context.Context, folder, resource string, offered []*v1.Device) error {
	kubelet, own := filepath.Join(folder, "kubelet.sock"), filepath.Join(folder, "gpurack-simulated-gpu.sock")
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watcher.Add(folder); err != nil {
		return err
	}
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	server := grpc.NewServer()
	v1.RegisterDevicePluginServer(server, &plugin{devices: offered, done: done})
	go func() { _ = server.Serve(listener) }()
	defer func() { close(done); server.Stop() }()
	// A starting kubelet first removes every plugin's socket, then makes its own: looked at in this order,
	// ours is one that the kubelet we register with leaves in place.
	seenKubelet, err := os.Stat(kubelet)
	if err != nil {
		return fmt.Errorf("kubelet is not up: %w", err)
	}
	seenOwn, err := os.Stat(own)
	if err != nil {
		return err
	}
	if err := register(ctx, kubelet, filepath.Base(own), resource); err != nil {
		return fmt.Errorf("register with kubelet: %w", err)
	}
	log.Printf("registered %d simulated devices as %s", len(offered), resource)
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if event.Name == kubelet && event.Has(fsnotify.Create) && !same(kubelet, seenKubelet) {
				log.Print("kubelet's socket was made anew: registering again")
				return nil
			}
			if event.Name == own && event.Has(fsnotify.Remove) && !same(own, seenOwn) {
				log.Print("our socket was removed: registering again")
				return nil
			}
		case err := <-watcher.Errors:
			return err
		}
	}
}

func main() {
	numa := flag.String("numa", "0,0,1,1", "NUMA node of each simulated device, in order; - for none")
	resource := flag.String("resource", "nvidia.com/gpu", "resource name")
	folder := flag.String("folder", strings.TrimSuffix(v1.DevicePluginPath, "/"), "kubelet's device plugin folder")
	flag.Parse()
	offered, err := devices(*numa)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		if err := serve(ctx, *folder, *resource, offered); err != nil {
			log.Printf("%v; trying again", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}
