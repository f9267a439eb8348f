package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is the registration half of a kubelet: kubelet's own protocol on kubelet's own socket name.
type kubelet struct {
	v1.UnimplementedRegistrationServer
	registered chan *v1.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, request *v1.RegisterRequest) (*v1.Empty, error) {
	k.registered <- request
	return &v1.Empty{}, nil
}

// start does what a starting kubelet does: it empties the folder of sockets, then makes its own.
func start(t *testing.T, folder string, k *kubelet) *grpc.Server {
	t.Helper()
	sockets, _ := filepath.Glob(filepath.Join(folder, "*.sock"))
	for _, socket := range sockets {
		_ = os.Remove(socket)
	}
	listener, err := net.Listen("unix", filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	v1.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	return server
}

func await(t *testing.T, k *kubelet) *v1.RegisterRequest {
	t.Helper()
	select {
	case request := <-k.registered:
		return request
	case <-time.After(10 * time.Second):
		t.Fatal("the plugin did not register")
		return nil
	}
}

func run(ctx context.Context, folder string, offered []*v1.Device) {
	for ctx.Err() == nil {
		if err := serve(ctx, folder, "nvidia.com/gpu", offered); err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func TestRegistersListsAndAllocatesAndComesBackAfterARestart(t *testing.T) {
	folder := t.TempDir()
	offered, err := devices("0,0,1,-")
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{registered: make(chan *v1.RegisterRequest, 16)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go run(ctx, folder, offered) // before kubelet: it keeps trying

	for round := 0; round < 3; round++ {
		server := start(t, folder, k)
		request := await(t, k)
		if request.ResourceName != "nvidia.com/gpu" || request.Version != v1.Version {
			t.Fatalf("round %d: registered as %v", round, request)
		}
		connection, err := grpc.NewClient("unix://"+filepath.Join(folder, request.Endpoint),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		client := v1.NewDevicePluginClient(connection)
		deadline, done := context.WithTimeout(ctx, 10*time.Second)
		stream, err := client.ListAndWatch(deadline, &v1.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		listed, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(listed.Devices) != 4 || listed.Devices[2].Topology.Nodes[0].ID != 1 || listed.Devices[3].Topology != nil {
			t.Fatalf("round %d: listed %v", round, listed.Devices)
		}
		given, err := client.Allocate(deadline, &v1.AllocateRequest{ContainerRequests: []*v1.ContainerAllocateRequest{
			{DevicesIds: []string{"GPU-simulated-2", "GPU-simulated-3"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := given.ContainerResponses[0].Envs["GPURACK_SIMULATED_GPUS"]
		if got != "GPU-simulated-2,GPU-simulated-3" {
			t.Fatalf("round %d: allocated %q", round, got)
		}
		done()
		_ = connection.Close()
		server.Stop()
	}
}

func TestRefusesWhatIsNoNumaNode(t *testing.T) {
	for _, text := range []string{"", "0,", "-1", "0,x", "0, 1"} {
		if _, err := devices(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
