package kube

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	cached "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// others makes objects of kinds that are not known beforehand.
type others struct {
	client dynamic.Interface
	mapper meta.ResettableRESTMapper
}

func newOthers(cfg *rest.Config, d discovery.DiscoveryInterface) (*others, error) {
	client, err := dynamic.NewForConfig(clientConfig(cfg))
	if err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	return &others{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached.NewMemCacheClient(d))}, nil
}

func (o *others) create(ctx context.Context, namespace string, u *unstructured.Unstructured) error {
	kind := u.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("the cluster does not know it: %w", err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return errors.New("it is of the whole cluster: leave it out, and create it before the run if the application needs it")
	}
	_, err = o.client.Resource(mapping.Resource).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{})
	return err
}
